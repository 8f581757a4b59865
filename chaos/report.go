package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// check is one thing that was judged.
type check struct {
	Name       string `json:"name"`
	Operations int    `json:"operations"`
	Error      string `json:"error,omitempty"`   // why it failed
	Finding    string `json:"finding,omitempty"` // what convicted a planted fault
}

// report is what -report writes.
type report struct {
	Seed    uint64         `json:"seed"`
	Secure  bool           `json:"secure"`
	Network bool           `json:"network"`
	Convict string         `json:"convict,omitempty"`
	Seconds float64        `json:"seconds"`
	Passed  int            `json:"passed"`
	Failed  int            `json:"failed"`
	Skipped []skippedFault `json:"skipped"`
	Checks  []check        `json:"checks"`
	Faults  []faultReport  `json:"faults"`
}

// faultReport is one row of the table of faults.
type faultReport struct {
	Name              string `json:"name"`
	Times             int    `json:"times"`
	LongestGapMs      int64  `json:"longest_without_write_ms"`
	LongestRecoveryMs int64  `json:"longest_recovery_ms"`
	LongestMs         int64  `json:"longest_ms"`
}

// checks are those of a run, which says each when it is judged.
type checks struct {
	run  *run
	list []check
}

func (c *checks) add(name string, count int, err error) {
	one := check{Name: name, Operations: count}
	if err != nil {
		one.Error = err.Error()
	}
	c.list = append(c.list, one)
	c.run.sayCheck(one)
}

// judge checks everything, after all faults are over.
func (r *run) judge(failed error) []check {
	judged := checks{run: r}
	judged.add("availability", 0, failed)
	var broken error
	if len(r.broken) > 0 {
		broken = errors.New(strings.Join(r.broken, "\n"))
	}
	judged.add("promises", 0, broken)
	// Without service there is nothing to read the end of the histories from.
	if failed == nil {
		w := newWorker(r.cluster, r.seed, 0)
		defer w.close()
		for _, load := range r.workloads {
			judged.add(load.name(), load.count(), load.check(w))
		}
		_, err := r.cluster.cli("cluster", "status", "--verify", "--wait-s", "60")
		judged.add("equal replicas", 0, err)
	}
	judged.add("processes", 0, r.unexpectedEnds())
	return judged.list
}

func (r *run) sayCheck(one check) {
	if one.Error == "" {
		r.say("ok      %-14s %7d operations", one.Name, one.Operations)
	} else {
		r.say("FAILED  %-14s %s", one.Name, one.Error)
	}
}

// unexpectedEnds are the processes that ended without a reason.
func (r *run) unexpectedEnds() error {
	r.cluster.mutex.Lock()
	defer r.cluster.mutex.Unlock()
	if len(r.cluster.unexpected) == 0 {
		return nil
	}
	return errors.New(strings.Join(r.cluster.unexpected, "; "))
}

// conclude prints the table and the counts, and writes the report. Returns whether all is well.
func (s *settings) conclude(checks []check, r *run, took time.Duration) bool {
	found := report{Seed: s.seed, Secure: s.secure, Network: r.cluster != nil && r.cluster.network != nil, Convict: s.convict,
		Seconds: took.Seconds(), Skipped: append([]skippedFault{}, r.skipped...), Checks: checks, Faults: r.faultReports()}
	for _, one := range checks {
		if one.Error == "" {
			found.Passed++
		} else {
			found.Failed++
		}
		if one.Finding != "" {
			fmt.Printf("%s: %s\n", one.Name, one.Finding)
		}
	}
	printFaults(found.Faults)
	if s.report != "" {
		content, err := json.MarshalIndent(found, "", "  ")
		if err == nil {
			err = os.WriteFile(s.report, append(content, '\n'), 0o644)
		}
		if err != nil {
			found.Failed++
			fmt.Println("the report cannot be written:", err)
		}
	}
	if found.Failed > 0 {
		fmt.Println("repeat with:", s.repeatCommand())
	}
	line := fmt.Sprintf("chaos: %d passed, %d failed", found.Passed, found.Failed)
	if len(found.Skipped) > 0 {
		line += fmt.Sprintf(", %d skipped", len(found.Skipped))
	}
	fmt.Println(line)
	return found.Failed == 0
}

// repeatCommand is the command that injects the same faults in the same order.
func (s *settings) repeatCommand() string {
	command := fmt.Sprintf("scripts/test-chaos %s -seed %d", s.binary, s.seed)
	flag.Visit(func(f *flag.Flag) {
		switch f.Name {
		case "binary", "seed", "report", "directory":
		default:
			command += fmt.Sprintf(" -%s=%s", f.Name, f.Value)
		}
	})
	return command
}

func (r *run) faultReports() []faultReport {
	rows := []faultReport{}
	for name, t := range r.tallies {
		rows = append(rows, faultReport{name, t.times, t.longestGap.Milliseconds(), t.longestRecovery.Milliseconds(),
			t.longest.Milliseconds()})
	}
	slices.SortFunc(rows, func(a, b faultReport) int { return strings.Compare(a.Name, b.Name) })
	return rows
}

func printFaults(rows []faultReport) {
	if len(rows) == 0 {
		return
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "FAULT\tTIMES\tLONGEST WITHOUT A WRITE\tALL NODES SERVE AFTER\tLONGEST IN ALL")
	for _, row := range rows {
		fmt.Fprintf(table, "%s\t%d\t%.2f s\t%.2f s\t%.2f s\n", row.Name, row.Times, float64(row.LongestGapMs)/1000,
			float64(row.LongestRecoveryMs)/1000, float64(row.LongestMs)/1000)
	}
	table.Flush()
}
