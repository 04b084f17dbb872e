package lb

import "math"

// logarithm returns the natural logarithm of x, which is in (0, 1].
//
// It gives the same bits on every machine. [math.Log] does not: some
// architectures have an assembly version, and on others (arm64) the compiler
// fuses a product and a sum into one operation that rounds once instead of
// twice. Two managers of one fleet must not disagree about who is first, so each
// product below is converted explicitly, which forbids the fusion (The Go
// Programming Language Specification, Floating-point operators).
//
// With x = m * 2^k and m in [sqrt(1/2), sqrt(2)), and s = (m-1)/(m+1),
//
//	ln x = k ln 2 + 2 (s + s^3/3 + s^5/5 + ...)
//
// |s| is below 0.172, so the terms after that of s^21 are below a hundredth of a
// unit in the last place. The result is within 3 such units of the true one.
func logarithm(x float64) float64 {
	m, k := math.Frexp(x) // exact
	if m < math.Sqrt2/2 {
		m, k = 2*m, k-1
	}
	s := (m - 1) / (m + 1)
	q := float64(s * s)
	sum := 1.0 / 21
	for d := 19.0; d >= 1; d -= 2 {
		sum = float64(sum*q) + 1/d
	}
	return float64(float64(k)*math.Ln2) + float64(2*s*sum)
}
