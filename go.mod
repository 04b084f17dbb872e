module github.com/lastbeat/lastbeat

go 1.26.0
