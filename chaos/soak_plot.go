package main

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
)

const (
	plotColumns = 3
	plotWidth   = 300.0
	plotHeight  = 150.0
	plotMargin  = 36.0
)

// plotColours can be told apart by people who do not see all colours (Okabe and Ito).
var plotColours = []string{"#0072b2", "#d55e00", "#009e73"}

// series is one line of a plot.
type series struct {
	name         string
	times, lines []float64
}

// writePlot draws what was sampled: a small plot for each metric of the nodes, and for how long
// each kind of client waits.
func (s *samples) writePlot(path string) error {
	var plots []string
	end := 1.0
	for _, sample := range s.nodes {
		end = max(end, sample.seconds)
	}
	for which, metric := range nodeMetrics {
		var all []series
		for _, n := range s.founders {
			one := series{name: fmt.Sprintf("node %d", n.number)}
			for _, sample := range s.nodes {
				if sample.node == n.number {
					one.times, one.lines = append(one.times, sample.seconds), append(one.lines, sample.values[which])
				}
			}
			all = append(all, one)
		}
		title := metric.name
		if metric.unit != "" {
			title += ", " + metric.unit
		}
		plots = append(plots, plot(title, end, all))
	}
	for kind := range soakKinds {
		p50, p99 := series{name: "p50"}, series{name: "p99"}
		for _, sample := range s.clients {
			if sample.kind == kind && sample.hasPercentiles {
				p50.times, p50.lines = append(p50.times, sample.seconds), append(p50.lines, sample.p50Ms)
				p99.times, p99.lines = append(p99.times, sample.seconds), append(p99.lines, sample.p99Ms)
			}
		}
		plots = append(plots, plot(soakKinds[kind].name+", ms", end, []series{p50, p99}))
	}
	rows := (len(plots) + plotColumns - 1) / plotColumns
	var svg strings.Builder
	fmt.Fprintf(&svg, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" font-family="sans-serif" font-size="11">`+"\n",
		plotColumns*plotWidth, float64(rows)*plotHeight)
	fmt.Fprintln(&svg, `<rect width="100%" height="100%" fill="white"/>`)
	for i, one := range plots {
		fmt.Fprintf(&svg, "<g transform=\"translate(%.0f %.0f)\">\n%s</g>\n", float64(i%plotColumns)*plotWidth,
			float64(i/plotColumns)*plotHeight, one)
	}
	fmt.Fprintln(&svg, "</svg>")
	return os.WriteFile(path, []byte(svg.String()), 0o644)
}

// plot draws lines over the time of the run, from 0 up to the highest value.
func plot(title string, end float64, all []series) string {
	var svg strings.Builder
	highest := 0.0
	for _, one := range all {
		for _, value := range one.lines {
			highest = max(highest, value)
		}
	}
	highest = roundUp(highest)
	width, height := plotWidth-2*plotMargin, plotHeight-2*plotMargin
	x := func(seconds float64) float64 { return plotMargin + seconds/end*width }
	y := func(value float64) float64 { return plotHeight - plotMargin - value/highest*height }
	text := func(x, y float64, anchor, colour, content string) {
		fmt.Fprintf(&svg, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" fill=\"%s\">%s</text>\n", x, y, anchor, colour, content)
	}
	text(plotMargin, plotMargin-18, "start", "black", title)
	for _, value := range []float64{0, highest} {
		fmt.Fprintf(&svg, "<path d=\"M%.1f %.1fH%.1f\" stroke=\"#bbb\"/>\n", x(0), y(value), x(end))
		text(x(0)-4, y(value)+4, "end", "#444", fmt.Sprintf("%g", value))
	}
	text(x(0), plotHeight-plotMargin+14, "start", "#444", "0")
	text(x(end), plotHeight-plotMargin+14, "end", "#444", fmt.Sprintf("%.0f min", end/60))
	for i, one := range all {
		colour := plotColours[i%len(plotColours)]
		text(x(end)-float64(len(all)-1-i)*44, plotMargin-6, "end", colour, one.name)
		var points strings.Builder
		// Of samples that are less than a pixel apart, the highest is drawn.
		together := 1 + len(one.times)/int(plotWidth)
		for j := 0; j < len(one.times); j += together {
			highest := slices.Max(one.lines[j:min(j+together, len(one.lines))])
			fmt.Fprintf(&points, "%.1f,%.1f ", x(one.times[j]), y(highest))
		}
		fmt.Fprintf(&svg, "<polyline points=\"%s\" fill=\"none\" stroke=\"%s\"/>\n", strings.TrimSpace(points.String()), colour)
	}
	return svg.String()
}

// roundUp is the next number of the form 1, 2 or 5 times a power of ten.
func roundUp(value float64) float64 {
	if value <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(value)))
	for _, factor := range []float64{1, 2, 5, 10} {
		if value <= factor*power {
			return factor * power
		}
	}
	return 10 * power
}
