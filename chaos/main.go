// Runs a cluster of the shipped binary, lets clients use it, makes it fail, and judges what the clients saw.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"
)

const founders = 3

// networkVariable tells the process in the namespace of the clients how the namespaces are named.
const networkVariable = "TIDELOCK_CHAOS_NETWORK"

type settings struct {
	binary, faults, convict, directory string
	seconds, faultSeconds              int
	seed                               uint64
	loopback                           bool
	port                               int
	bound                              time.Duration
}

func main() {
	var s settings
	flag.StringVar(&s.binary, "binary", "", "the `file` of tidelock that is tried")
	flag.IntVar(&s.seconds, "seconds", 300, "how long faults are injected, in `seconds`")
	flag.StringVar(&s.faults, "faults", "", "names of the faults to inject, separated by commas [default: all, in a random order]")
	flag.IntVar(&s.faultSeconds, "fault-seconds", 6, "how long a fault lasts at most, in `seconds`")
	flag.Uint64Var(&s.seed, "seed", 0, "decides which faults are injected [default: random]")
	flag.BoolVar(&s.loopback, "loopback", false, "run all nodes on 127.0.0.1, without faults of the network")
	flag.IntVar(&s.port, "port", 23200, "first `port` on 127.0.0.1")
	flag.DurationVar(&s.bound, "bound", 30*time.Second, "how long a fault may affect the cluster after its end")
	flag.StringVar(&s.convict, "convict", "", "what must be found: lying-disk (writes are acknowledged before they are synced) or stale-reads "+
		"(reads are answered without asking the leader)")
	flag.StringVar(&s.directory, "directory", "", "where data and logs of the nodes are kept [default: a temporary directory, removed if all is well]")
	list := flag.Bool("list", false, "list the faults")
	flag.Parse()
	redis.SetLogger(silent{})
	if *list {
		for _, f := range allFaults {
			fmt.Println(f.name)
		}
		return
	}
	code, err := start(s)
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// foundBy is the workload that must find each planted fault.
var foundBy = map[string]string{"lying-disk": "durability", "stale-reads": "registers"}

// wanted are the names of the faults to inject; all of them if there is none.
func (s *settings) wanted() []string {
	return strings.FieldsFunc(s.faults, func(c rune) bool { return c == ',' })
}

// check refuses names that nothing has.
func (s *settings) check() error {
	for _, name := range s.wanted() {
		if !slices.ContainsFunc(allFaults, func(f fault) bool { return f.name == name }) {
			return fmt.Errorf("no fault is named %q; -list shows all", name)
		}
	}
	if s.convict != "" && foundBy[s.convict] == "" {
		return fmt.Errorf("no planted fault is named %q; -help shows both", s.convict)
	}
	return nil
}

// start runs in a namespace of its own, if these can be made.
func start(s settings) (int, error) {
	if s.binary == "" || flag.NArg() > 0 {
		return 2, errors.New("usage: chaos -binary FILE [FLAG…]; -help lists the flags")
	}
	if err := s.check(); err != nil {
		return 2, err
	}
	if prefix := os.Getenv(networkVariable); prefix != "" {
		return try(s, &network{prefix})
	}
	if s.loopback {
		return try(s, nil)
	}
	made, err := newNetwork()
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos: no network namespaces, so no faults of the network:", err)
		return try(s, nil)
	}
	defer made.remove()
	itself, err := os.Executable()
	if err != nil {
		return 1, err
	}
	inside := made.command(hub, append([]string{itself}, os.Args[1:]...)...)
	inside.Env = append(os.Environ(), networkVariable+"="+made.prefix)
	inside.Stdout, inside.Stderr = os.Stdout, os.Stderr
	// Signals from a terminal reach both; this process stays to remove the namespaces.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if err := inside.Start(); err != nil {
		return 1, err
	}
	go func() {
		for received := range signals {
			_ = inside.Process.Signal(received)
		}
	}()
	err = inside.Wait()
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		return max(ended.ExitCode(), 1), nil
	}
	return 0, err
}

// run is one cluster with its clients.
type run struct {
	settings
	cluster    *cluster
	workloads  []workload
	durability *durability
	tallies    map[string]*tally
	printing   sync.Mutex
}

// tally is what is known of one fault, or of two that came together.
type tally struct {
	times           int
	longestGap      time.Duration // without an acknowledged write, of all clients together
	longestRecovery time.Duration // from its end until all nodes served
}

func try(s settings, network *network) (int, error) {
	if s.seed == 0 {
		s.seed = rand.Uint64()
	}
	directory := s.directory
	if directory == "" {
		made, err := os.MkdirTemp("", "tidelock-chaos-")
		if err != nil {
			return 1, err
		}
		directory = made
	}
	directory, err := filepath.Abs(directory)
	if err != nil {
		return 1, err
	}
	binary, err := filepath.Abs(s.binary)
	if err != nil {
		return 1, err
	}
	c, err := newCluster(binary, directory, network, s.port)
	if err != nil {
		return 1, err
	}
	r := &run{settings: s, cluster: c, durability: &durability{}, tallies: map[string]*tally{}}
	r.workloads = []workload{
		&registers{history: newHistory(), isStale: s.convict == "stale-reads"}, &counters{history: newHistory()},
		&accounts{history: newHistory()}, &publications{history: newHistory()}, newLocks(), &leases{}, &watches{}, r.durability,
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer func() {
		for _, n := range c.members() {
			n.signal(syscall.SIGCONT)
			n.kill()
		}
	}()
	fmt.Printf("seed %d, data and logs in %s\n", s.seed, directory)
	failed, err := r.execute(ctx)
	if err != nil {
		return 1, err
	}
	if failed == 0 && s.directory == "" {
		return 0, os.RemoveAll(directory)
	}
	return min(failed, 1), nil
}

func (r *run) say(format string, values ...any) {
	r.printing.Lock()
	defer r.printing.Unlock()
	fmt.Printf("%s  %s\n", time.Now().Format("15:04:05.000"), fmt.Sprintf(format, values...))
}

// execute runs everything, and returns how many checks have failed.
func (r *run) execute(ctx context.Context) (int, error) {
	if err := r.cluster.found(founders); err != nil {
		return 0, err
	}
	if _, err := r.recover(time.Minute); err != nil {
		return 0, err
	}
	r.say("the cluster serves")
	working, stop := context.WithCancel(ctx)
	var clients sync.WaitGroup
	for number, load := range r.workloads {
		for id := range load.clients() {
			clients.Go(func() { r.work(working, load, 1000*number+id, id) })
		}
	}
	var slow error
	if r.convict == "" {
		slow = r.injectAll(ctx)
	} else {
		slow = r.injectPlanted(ctx)
	}
	stop()
	clients.Wait()
	if ctx.Err() != nil {
		return 0, errors.New("interrupted")
	}
	return r.judge(slow)
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

// chosen are the faults that can be injected here, and the names of those that cannot.
func (r *run) chosen() (possible []fault, skipped []string) {
	wanted := r.wanted()
	for _, f := range allFaults {
		switch {
		case len(wanted) > 0 && !slices.Contains(wanted, f.name):
		case f.on == links && r.cluster.network == nil:
			skipped = append(skipped, f.name)
		default:
			possible = append(possible, f)
		}
	}
	return possible, skipped
}

// injectAll injects faults until the time is over: each alone in a random order, then two at a time.
func (r *run) injectAll(ctx context.Context) error {
	possible, skipped := r.chosen()
	if len(possible) == 0 {
		return errors.New("no fault is left to inject")
	}
	for _, name := range skipped {
		r.say("SKIPPED %s: it needs network namespaces", name)
	}
	random := rand.New(rand.NewPCG(r.seed, 0))
	end := time.Now().Add(time.Duration(r.seconds) * time.Second)
	for round := 0; time.Now().Before(end) && ctx.Err() == nil; round++ {
		order := slices.Clone(possible)
		random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for i, first := range order {
			if !time.Now().Before(end) || ctx.Err() != nil {
				break
			}
			together := []fault{first}
			if second := order[(i+1)%len(order)]; round > 0 && second.on != first.on {
				together = append(together, second)
			}
			if err := r.inject(ctx, random, together); err != nil {
				return err
			}
		}
	}
	return nil
}

// inject lets faults happen at the same time, and waits until all nodes serve again.
func (r *run) inject(ctx context.Context, random *rand.Rand, together []fault) error {
	var all []string
	for _, one := range together {
		all = append(all, one.name)
	}
	name := strings.Join(all, " + ")
	r.durability.gap()
	lasting, cancel := context.WithTimeout(ctx, time.Duration(1000+random.IntN(1000*r.faultSeconds))*time.Millisecond)
	defer cancel()
	results := make(chan error, len(together))
	for _, one := range together {
		f := &faults{r.cluster, rand.New(rand.NewPCG(random.Uint64(), 0)), r.say}
		go func() { results <- one.inject(f, lasting) }()
	}
	var failed error
	for range together {
		failed = errors.Join(failed, <-results)
	}
	if failed != nil {
		return fmt.Errorf("%s: %w", name, failed)
	}
	took, err := r.recover(r.bound)
	if err != nil {
		return fmt.Errorf("%v after %s: %w", took.Round(time.Millisecond), name, err)
	}
	t := r.tallies[name]
	if t == nil {
		t = &tally{}
		r.tallies[name] = t
	}
	t.times++
	t.longestGap = max(t.longestGap, r.durability.gap())
	t.longestRecovery = max(t.longestRecovery, took)
	return nil
}

// injectPlanted is what finds the planted fault.
func (r *run) injectPlanted(ctx context.Context) error {
	random := rand.New(rand.NewPCG(r.seed, 0))
	f := &faults{r.cluster, random, r.say}
	switch r.convict {
	case "lying-disk":
		for _, n := range r.cluster.members() {
			set(&n.disk.control.isLying, 1)
		}
		wait(ctx, 5*time.Second)
		for _, n := range r.cluster.members() {
			unsynced, err := n.losePower(func(int) int { return 0 })
			if err != nil {
				return err
			}
			f.said("node %d loses its power, and %d writes", n.number, unsynced)
			n.disk.heal()
		}
		if err := f.startAll(r.cluster.members()); err != nil {
			return err
		}
	case "stale-reads":
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
			short, cancel := context.WithTimeout(ctx, time.Second)
			err := f.pause(short, f.some())
			cancel()
			if err != nil {
				return err
			}
		}
	}
	_, err := r.recover(r.bound)
	return err
}

// recover waits until every member has done a write of a key of its own and read it. Returns how long that took.
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

// judge prints what was found, and returns how many checks have failed.
func (r *run) judge(slow error) (int, error) {
	w := newWorker(r.cluster, r.seed, 0)
	defer w.close()
	passed, failed := 0, 0
	found := map[string]error{}
	report := func(name string, count int, err error) {
		found[name] = err
		if err == nil {
			passed++
			r.say("ok      %-14s %7d operations", name, count)
		} else {
			failed++
			r.say("FAILED  %-14s %v", name, err)
		}
	}
	report("availability", 0, slow)
	if slow == nil && r.convict != "" {
		load := r.expected()
		report(load.name(), load.count(), load.check(w))
		return r.verdict(load.name(), found[load.name()])
	}
	if slow == nil {
		for _, load := range r.workloads {
			report(load.name(), load.count(), load.check(w))
		}
		_, err := r.cluster.cli("cluster", "status", "--verify", "--wait-s", "60")
		report("equal replicas", 0, err)
	}
	var ended error
	if r.cluster.mutex.Lock(); len(r.cluster.unexpected) > 0 {
		ended = errors.New(strings.Join(r.cluster.unexpected, "; "))
	}
	r.cluster.mutex.Unlock()
	report("processes", 0, ended)
	r.printTallies()
	fmt.Printf("chaos: %d passed, %d failed\n", passed, failed)
	return failed, nil
}

// expected is the workload that must find the planted fault.
func (r *run) expected() workload {
	isIt := func(load workload) bool { return load.name() == foundBy[r.convict] }
	return r.workloads[slices.IndexFunc(r.workloads, isIt)]
}

// verdict says whether the planted fault was found.
func (r *run) verdict(name string, found error) (int, error) {
	if found == nil {
		fmt.Printf("chaos: 0 passed, 1 failed\n")
		return 1, fmt.Errorf("%s did not find %s", name, r.convict)
	}
	fmt.Printf("%s is found: %v\nchaos: 1 passed, 0 failed\n", r.convict, found)
	return 0, nil
}

func (r *run) printTallies() {
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "FAULT\tTIMES\tLONGEST WITHOUT A WRITE\tALL NODES SERVE AFTER")
	var names []string
	for name := range r.tallies {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		t := r.tallies[name]
		fmt.Fprintf(table, "%s\t%d\t%.2f s\t%.2f s\n", name, t.times, t.longestGap.Seconds(), t.longestRecovery.Seconds())
	}
	table.Flush()
}
