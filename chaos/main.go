// Runs a cluster of the shipped binary under load and faults, and checks what the clients saw.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// networkVariable tells the process in the namespace of the clients how the namespaces are named.
const networkVariable = "TIDELOCK_CHAOS_NETWORK"

// settings are the values of the flags.
type settings struct {
	binary, faults, convict, directory, report string
	seconds, faultSeconds, soakMinutes         int
	seed                                       uint64
	loopback, secure                           bool
	port                                       int
	bound                                      time.Duration
}

func main() {
	var s settings
	flag.StringVar(&s.binary, "binary", "", "the `file` of tidelock to test")
	flag.IntVar(&s.seconds, "seconds", 300, "inject faults for this many `seconds`; every fault is injected once even "+
		"if that takes longer")
	flag.StringVar(&s.faults, "faults", "", "names of the faults to inject, separated by commas [default: all]")
	flag.IntVar(&s.faultSeconds, "fault-seconds", 6, "how long a fault lasts at most, in `seconds`")
	flag.Uint64Var(&s.seed, "seed", 0, "decides which faults are injected [default: random]")
	flag.BoolVar(&s.loopback, "loopback", false, "run all nodes on 127.0.0.1, without faults of the network")
	flag.BoolVar(&s.secure, "secure", true, "nodes and clients use TLS, and clients need a token")
	flag.IntVar(&s.port, "port", 23200, "first `port` on 127.0.0.1")
	flag.DurationVar(&s.bound, "bound", 30*time.Second, "within which time all nodes must serve after a fault")
	flag.StringVar(&s.convict, "convict", "", "plant a fault that must be found: lying-disk (writes are acknowledged "+
		"before they are synced) or stale-reads (reads are answered without asking the leader)")
	flag.IntVar(&s.soakMinutes, "soak", 0, "run under load for this many `minutes`, without faults of disks and "+
		"networks, and check that the resources of the nodes stay the same")
	flag.StringVar(&s.directory, "directory", "", "where to keep data and logs of the nodes, and the samples of -soak "+
		"[default: a temporary directory, removed unless a check fails]")
	flag.StringVar(&s.report, "report", "", "write the results to this `file` as JSON")
	list := flag.Bool("list", false, "list the faults")
	flag.Parse()
	redis.SetLogger(silent{})
	if *list {
		for _, f := range allFaults {
			fmt.Println(f.name)
		}
		return
	}
	os.Exit(start(s))
}

// names are the faults that -faults names; none means all.
func (s *settings) names() []string {
	return strings.FieldsFunc(s.faults, func(c rune) bool { return c == ',' })
}

// check refuses unknown names.
func (s *settings) check() error {
	if s.binary == "" || flag.NArg() > 0 {
		return errors.New("usage: chaos -binary FILE [FLAG…]; -help lists the flags")
	}
	for _, name := range s.names() {
		if !slices.ContainsFunc(allFaults, func(f fault) bool { return f.name == name }) {
			return fmt.Errorf("no fault is named %q; -list shows all", name)
		}
	}
	if s.convict != "" && foundBy[s.convict] == "" {
		return fmt.Errorf("no planted fault is named %q; -help shows both", s.convict)
	}
	return nil
}

// start makes the network if it can, runs, and returns the exit code.
func start(s settings) int {
	if err := s.check(); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		return 2
	}
	if prefix := os.Getenv(networkVariable); prefix != "" {
		return execute(s, &network{prefix})
	}
	if s.loopback {
		return execute(s, nil)
	}
	// Before the first namespace exists, so that no signal leaves one behind.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	removeAbandoned()
	made, err := newNetwork()
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos: no network namespaces, so no faults of the network:", err)
		signal.Reset()
		return execute(s, nil)
	}
	defer made.remove()
	code, err := runInside(made, signals)
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
	}
	return code
}

// runInside runs this program again, in the namespace of the clients. This process removes the
// namespaces when that one has ended, also if it crashed.
func runInside(made *network, signals <-chan os.Signal) (int, error) {
	itself, err := os.Executable()
	if err != nil {
		return 1, err
	}
	inside := made.command(hub, append([]string{itself}, os.Args[1:]...)...)
	inside.Env = append(os.Environ(), networkVariable+"="+made.prefix)
	inside.Stdout, inside.Stderr = os.Stdout, os.Stderr
	if err := startChild(inside); err != nil {
		return 1, err
	}
	go func() {
		for received := range signals {
			_ = inside.Process.Signal(received)
		}
	}()
	err = inside.Wait()
	var ended *exec.ExitError
	if !errors.As(err, &ended) {
		return 0, err
	}
	if ended.ExitCode() != 1 {
		fmt.Printf("the harness ended without a result: %v\nchaos: 0 passed, 1 failed\n", ended)
	}
	return 1, nil
}
