package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const founders = 3

// run is one cluster with its clients.
type run struct {
	settings
	cluster    *cluster
	workloads  []workload
	durability *durability
	tallies    map[string]*tally
	skipped    []skippedFault
	broken     []string // promises that a fault found broken
	printing   sync.Mutex
}

// skippedFault is a fault that this run cannot inject.
type skippedFault struct {
	Fault  string `json:"fault"`
	Reason string `json:"reason"`
}

// execute makes the cluster, runs, prints the result, and returns the exit code.
func execute(s settings, network *network) int {
	if s.seed == 0 {
		s.seed = rand.Uint64()
	}
	directory, err := makeDirectory(s.directory)
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		return 1
	}
	fmt.Printf("seed %d, TLS %t, data and logs in %s\n", s.seed, s.secure, directory)
	began := time.Now()
	checks, r, err := runIn(s, directory, network)
	if err != nil {
		checks = append(checks, check{Name: "run", Error: err.Error()})
		fmt.Fprintln(os.Stderr, "chaos:", err)
	}
	isWell := s.conclude(checks, r, time.Since(began))
	// The plot and the samples of a soak are in the directory, too.
	if isWell && s.directory == "" && s.soakMinutes == 0 {
		_ = os.RemoveAll(directory)
	}
	if !isWell {
		return 1
	}
	return 0
}

func makeDirectory(wanted string) (string, error) {
	if wanted == "" {
		return os.MkdirTemp("", "tidelock-chaos-")
	}
	directory, err := filepath.Abs(wanted)
	if err != nil {
		return "", err
	}
	return directory, os.MkdirAll(directory, 0o700)
}

// runIn runs with data and logs in a directory. All processes have ended when it returns.
func runIn(s settings, directory string, network *network) ([]check, *run, error) {
	r := &run{settings: s, durability: &durability{}, tallies: map[string]*tally{}}
	c, err := newCluster(&s, directory, network)
	if err != nil {
		return nil, r, err
	}
	r.cluster = c
	defer c.killAll()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := c.startFounders(founders); err != nil {
		return nil, r, err
	}
	if _, err := r.recover(time.Minute); err != nil {
		return nil, r, err
	}
	r.say("the cluster serves")
	if s.soakMinutes > 0 {
		checks, err := r.soak(ctx)
		return checks, r, err
	}
	checks, err := r.underFaults(ctx)
	return checks, r, err
}

func (r *run) say(format string, values ...any) {
	r.printing.Lock()
	defer r.printing.Unlock()
	fmt.Printf("%s  %s\n", time.Now().Format("15:04:05.000"), fmt.Sprintf(format, values...))
}

// underFaults lets clients use the cluster, injects faults, and judges what the clients saw.
func (r *run) underFaults(ctx context.Context) ([]check, error) {
	r.workloads = []workload{
		&registers{history: newHistory(), isStale: r.convict == "stale-reads"}, &counters{history: newHistory()},
		&accounts{history: newHistory()}, &publications{history: newHistory()}, newLocks(), &leases{}, &watches{}, r.durability,
	}
	working, stop := context.WithCancel(ctx)
	var clients sync.WaitGroup
	for number, load := range r.workloads {
		for id := range load.clients() {
			clients.Go(func() { r.work(working, load, 1000*number+id, id) })
		}
	}
	var failed error
	if r.convict == "" {
		failed = r.injectAll(ctx)
	} else {
		failed = r.injectPlanted(ctx)
	}
	stop()
	clients.Wait()
	if ctx.Err() != nil {
		return nil, errors.New("interrupted")
	}
	if r.convict != "" {
		return r.judgePlanted(failed), nil
	}
	return r.judge(failed), nil
}

// work is the life of one client.
func (r *run) work(ctx context.Context, load workload, id, place int) {
	w := newWorker(r.cluster, r.seed, id)
	w.place = place
	defer w.close()
	for ctx.Err() == nil {
		load.step(ctx, w)
		wait(ctx, time.Duration(w.random.IntN(20))*time.Millisecond)
	}
}

// recover waits until every member has written and read a key. Returns how long that took.
func (r *run) recover(bound time.Duration) (time.Duration, error) {
	start := time.Now()
	var waiting sync.WaitGroup
	var late atomic.Int64
	for _, n := range r.cluster.members() {
		waiting.Go(func() {
			w := newWorker(r.cluster, 0, 0)
			defer w.close()
			value := fmt.Sprint(unique())
			path := fmt.Sprintf("/v1/keys/recovery/%d", n.number)
			for {
				written := w.of(n).ask("PUT", path, value)
				if written.outcome == done && string(w.of(n).ask("GET", path, "").body) == value {
					return
				}
				if time.Since(start) > bound {
					late.Store(int64(n.number))
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	waiting.Wait()
	if number := late.Load(); number != 0 {
		return time.Since(start), fmt.Errorf("node %d does not serve", number)
	}
	return time.Since(start), nil
}
