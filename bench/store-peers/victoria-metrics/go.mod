// VictoriaMetrics' server, as bench/bench-store builds it. A module of its own: it needs other versions of what Prometheus needs, too.
module onlooker/bench/store-peers/victoria-metrics

go 1.26

tool github.com/VictoriaMetrics/VictoriaMetrics/app/victoria-metrics

require github.com/VictoriaMetrics/VictoriaMetrics v1.151.0
