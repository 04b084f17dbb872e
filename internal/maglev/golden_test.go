package maglev

var goldenEqual = []uint32{0, 0, 2, 2, 2, 2, 2, 1, 0, 1, 0, 1, 1}

var goldenWeighted = []uint32{2, 0, 0, 2, 2, 0, 0, 1, 1, 2, 0, 0, 2}
