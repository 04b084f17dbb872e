package lb

func (Static) traits() traits { return traits{unweighted: true} }
func (Static) fault() string  { return "" }

func (Static) prepare(*group, picker, func(n uint64) uint64) picker { return first{} }

// first picks the first member with room.
type first struct{}

func (first) pick(g *group, _ uint64, tried set) int { return g.scan(0, tried) }
