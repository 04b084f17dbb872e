package balancer

import (
	_ "embed"
	"fmt"
	"html/template"
	"net/http"
	"strings"
	"time"
)

// stats is the port for those who look: a page for people at /, the Status as JSON at
// /status, and /metrics for Prometheus. Nothing can be changed by it.
func (b *B) stats() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		text, err := renderPage(b.Status(), time.Now())
		if err != nil { // can't be: the template is ours
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
		w.Write([]byte(text))
	})
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { answerJSON(w, b.Status()) })
	mux.Handle("GET /metrics", metricsHandler(b.Status))
	return mux
}

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"color": color,
	"count": count,
	"span":  span,
	"since": time.Time.Sub,
	"size":  size,
}).Parse(pageText))

func renderPage(s Status, now time.Time) (string, error) {
	var out strings.Builder
	err := page.Execute(&out, struct {
		Status  Status
		Now     time.Time
		Warning string
	}{s, now, warning(s)})
	return out.String(), err
}

// warning says on which ground servers are used, when that is not the ordinary one.
func warning(s Status) string {
	switch {
	case len(s.Backends) == 0:
		return ""
	case s.Mode == "empty":
		return "No server may be used: new connections are reset."
	case s.Mode == "backup":
		return "No server in regular use is alive: backups are used."
	case s.Mode == "panic":
		return "No server is known to be alive: those of which nothing is known are used."
	}
	return ""
}

// count writes a number of connections, which may be of several types.
func count(n any) (string, error) {
	switch n := n.(type) {
	case int:
		return thousands(uint64(max(0, n))), nil
	case int64:
		return thousands(uint64(max(0, n))), nil
	case uint64:
		return thousands(n), nil
	}
	return "", fmt.Errorf("%T is no number of connections", n)
}

// color is the class of a server's row. The words stand in it, too: a color alone says
// nothing.
func color(s BackendStatus) string {
	switch {
	case s.State == "offline":
		return "bad"
	case s.Usable:
		return "ok"
	}
	return "odd"
}

// span writes a time in the two units that matter. A negative one is of a clock that
// was set back, or of a verdict that ended just now.
func span(d time.Duration) string {
	s := int64(max(0, d.Round(time.Second)) / time.Second)
	switch {
	case s < 60:
		return fmt.Sprintf("%d s", s)
	case s < 3600:
		return fmt.Sprintf("%d min %d s", s/60, s%60)
	case s < 86400:
		return fmt.Sprintf("%d h %d min", s/3600, s/60%60)
	}
	return fmt.Sprintf("%d d %d h", s/86400, s/3600%24)
}

// size writes a number of bytes with three digits.
func size(n uint64) string {
	if n < 1000 {
		return fmt.Sprintf("%d B", n)
	}
	f, unit := float64(n), -1
	for f >= 999.5 && unit < 4 {
		f /= 1000
		unit++
	}
	digits := 0
	if f < 9.995 {
		digits = 2
	} else if f < 99.95 {
		digits = 1
	}
	return fmt.Sprintf("%.*f %cB", digits, f, "kMGTP"[unit])
}
