package main

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"
)

// judging is how long porcupine may take for one workload.
const judging = 2 * time.Minute

// registers: keys that are read, written, and written on condition that they have not changed, over
// HTTP and the Redis protocol. Each written value is unique, so a value stands for its version.
type registers struct {
	history    *history
	generation generation
	// Whether reads are answered from the memory of the node that is asked. They are not
	// linearizable.
	isStale bool
}

// registerStep is an operation on one key: a read if `written` is empty; conditional if `expected`
// is given.
type registerStep struct {
	key, written string
	expected     *string
}

func (s registerStep) isRead() bool { return s.written == "" }

func (r *registers) name() string { return "registers" }
func (r *registers) clients() int { return 6 }
func (r *registers) count() int   { return len(r.history.operations) }

func (r *registers) step(_ context.Context, w *worker) {
	key := fmt.Sprintf("register-%d-%d", r.generation.next(1200), w.random.IntN(4))
	c, value := w.any(), strconv.FormatUint(unique(), 10)
	path := "/v1/keys/" + key
	switch choice := w.random.IntN(10); {
	case choice < 4:
		r.history.do(w.id, registerStep{key: key}, func() (any, outcome) {
			if r.isStale {
				return readValue(c.ask("GET", path+"?stale=true", ""))
			}
			return readValue(c.ask("GET", path, ""))
		})
	case choice < 5:
		r.history.do(w.id, registerStep{key: key}, func() (any, outcome) {
			reply, outcome := c.command("GET", key)
			text, _ := reply.(string)
			return text, outcome
		})
	case choice < 7:
		r.history.do(w.id, registerStep{key: key, written: value}, func() (any, outcome) {
			return true, c.ask("PUT", path, value).outcome
		})
	case choice < 8:
		r.history.do(w.id, registerStep{key: key, written: value}, func() (any, outcome) {
			_, outcome := c.command("SET", key, value)
			return true, outcome
		})
	default:
		// A stale read may serve as the base of a condition: the condition decides.
		base := w.any().ask("GET", path+"?stale=true", "")
		text, found := readValue(base)
		if found != done {
			return
		}
		expected, version := text.(string), base.version
		if base.status == 404 {
			version = `"0"`
		}
		r.history.do(w.id, registerStep{key: key, written: value, expected: &expected}, func() (any, outcome) {
			put := c.ask("PUT", path, value, "If-Match", version)
			if put.status == 412 {
				return false, done
			}
			return true, put.outcome
		})
	}
}

// readValue is the value that was read; a missing key is the empty text.
func readValue(found answer) (any, outcome) {
	if found.status == 404 {
		return "", done
	}
	return string(found.body), found.outcome
}

func (r *registers) check(*worker) error {
	r.history.settle(func(input any) any { return input.(registerStep).written }, func(operation porcupine.Operation) []any {
		switch step := operation.Input.(registerStep); {
		case step.written == "":
			return []any{operation.Output}
		case step.expected != nil && operation.Output == true:
			return []any{*step.expected}
		default:
			return nil
		}
	})
	return r.history.check(porcupine.Model{
		Partition: byKey(func(input any) string { return input.(registerStep).key }),
		Init:      func() any { return "" },
		Step: func(state, input, output any) (bool, any) {
			step := input.(registerStep)
			switch {
			case step.written == "":
				return output == nil || output == state, state
			case step.expected == nil:
				return true, step.written
			case output == nil && *step.expected != state:
				return true, state
			case output == nil || output == true:
				return *step.expected == state, step.written
			default:
				return *step.expected != state, state
			}
		},
	}, judging)
}

// counters: keys that several clients add to over the Redis protocol. Each addition to a counter is
// another power of two, so a sum shows which additions it has, also of those without an answer.
type counters struct {
	history *history
	steps   atomic.Uint64
}

// additionsMax is how many additions a counter gets: its sum has 63 bits.
const additionsMax = 62

type addition struct {
	key    string
	amount int64 // 0: a read
}

func (a addition) isRead() bool { return a.amount == 0 }

func (c *counters) name() string { return "counters" }
func (c *counters) clients() int { return 3 }
func (c *counters) count() int   { return len(c.history.operations) }

func (c *counters) step(_ context.Context, w *worker) {
	isRead := w.random.IntN(4) == 0
	number := c.steps.Load()
	if !isRead {
		number = c.steps.Add(1)
	}
	step := addition{key: fmt.Sprintf("counter-%d", number/additionsMax)}
	if !isRead {
		step.amount = 1 << (number % additionsMax)
	}
	asked := w.any()
	c.history.do(w.id, step, func() (any, outcome) {
		if isRead {
			reply, outcome := asked.command("GET", step.key)
			text, _ := reply.(string)
			number, _ := strconv.ParseInt(text, 10, 64)
			return number, outcome
		}
		reply, outcome := asked.command("INCRBY", step.key, step.amount)
		return reply, outcome
	})
}

func (c *counters) check(*worker) error {
	type bit struct {
		key    string
		amount int64
	}
	c.history.settle(func(input any) any {
		step := input.(addition)
		return bit(step)
	}, func(operation porcupine.Operation) (seen []any) {
		for sum, place := operation.Output.(int64), 0; place < additionsMax; place++ {
			if sum>>place&1 == 1 {
				seen = append(seen, bit{operation.Input.(addition).key, 1 << place})
			}
		}
		return seen
	})
	c.history.dropUnanswered()
	return c.history.check(porcupine.Model{
		Partition: byKey(func(input any) string { return input.(addition).key }),
		Init:      func() any { return int64(0) },
		Step: func(state, input, output any) (bool, any) {
			sum := state.(int64) + input.(addition).amount
			return output == nil || output == sum, sum
		},
	}, judging)
}

// accounts: transactions that move units between the accounts of a bank, if these have not changed
// since they were read.
type accounts struct {
	history    *history
	generation generation
}

const (
	accountCount = 4
	accountUnits = 100
)

// transfer moves units between two accounts that have the given units; or reads all of them, if
// `transfer` is 0.
type transfer struct {
	bank                       string
	from, to                   int
	seenFrom, seenTo, transfer int
}

type balances [accountCount]int

func (t transfer) isRead() bool { return t.transfer == 0 }

func (a *accounts) name() string { return "transactions" }
func (a *accounts) clients() int { return 3 }
func (a *accounts) count() int   { return len(a.history.operations) }

type transactionResult struct {
	Succeeded bool
	Results   []struct {
		Get struct {
			Ver uint64
			Val *string
		}
	}
}

func account(bank string, number int) string { return fmt.Sprintf("{%s}%d", bank, number) }

// read is the units and the versions of all accounts. A missing account has its first units, and
// version 0.
func (a *accounts) read(c *client, bank string) (found balances, versions [accountCount]uint64, outcome outcome) {
	var gets []any
	for number := range accountCount {
		gets = append(gets, map[string]any{"get": map[string]any{"key": account(bank, number)}})
	}
	answer := c.ask("POST", "/v1/transactions", encode(map[string]any{"then": gets}))
	var result transactionResult
	if answer.outcome != done || !answer.into(&result) || len(result.Results) != accountCount {
		return found, versions, unknown
	}
	for number, got := range result.Results {
		found[number] = accountUnits
		if got.Get.Val != nil {
			found[number], _ = strconv.Atoi(*got.Get.Val)
		}
		versions[number] = got.Get.Ver
	}
	return found, versions, done
}

func (a *accounts) step(_ context.Context, w *worker) {
	bank := fmt.Sprintf("bank-%d", a.generation.next(120))
	var seen balances
	var versions [accountCount]uint64
	asked := w.any()
	found := a.history.do(w.id, transfer{bank: bank}, func() (any, outcome) {
		var outcome outcome
		seen, versions, outcome = a.read(asked, bank)
		return seen, outcome
	})
	if found != done {
		return
	}
	from, to := w.random.IntN(accountCount), w.random.IntN(accountCount-1)
	if to >= from {
		to++
	}
	amount := 1 + w.random.IntN(5)
	step := transfer{bank, from, to, seen[from], seen[to], amount}
	asked = w.any()
	a.history.do(w.id, step, func() (any, outcome) {
		compare := func(number int) any {
			return map[string]any{"key": account(bank, number), "ver": versions[number]}
		}
		put := func(number, units int) any {
			return map[string]any{"put": map[string]any{"key": account(bank, number), "val": strconv.Itoa(units)}}
		}
		answer := asked.ask("POST", "/v1/transactions", encode(map[string]any{
			"if":   []any{compare(from), compare(to)},
			"then": []any{put(from, seen[from]-amount), put(to, seen[to]+amount)},
		}))
		var result transactionResult
		if answer.outcome == done && !answer.into(&result) {
			return nil, unknown
		}
		return result.Succeeded, answer.outcome
	})
}

func (a *accounts) check(*worker) error {
	return a.history.check(porcupine.Model{
		Partition: byKey(func(input any) string { return input.(transfer).bank }),
		Init: func() any {
			var all balances
			for number := range all {
				all[number] = accountUnits
			}
			return all
		},
		Step: func(state, input, output any) (bool, any) {
			step, now := input.(transfer), state.(balances)
			if step.transfer == 0 {
				return output == nil || output == now, now
			}
			// Versions are not in the model: accounts may have come back to the units that were
			// seen.
			if output == false {
				return true, now
			}
			if now[step.from] != step.seenFrom || now[step.to] != step.seenTo {
				return output == nil, now
			}
			now[step.from] -= step.transfer
			now[step.to] += step.transfer
			return true, now
		},
	}, judging)
}

// publications: a pair of the configuration centre, published on condition of the revision of its
// namespace.
type publications struct {
	history    *history
	generation generation
}

// publication sets the pair if the namespace is at a revision; or reads it, if `value` is empty.
type publication struct {
	namespace, value string
	expected         uint64
}

type published struct {
	revision uint64
	value    string
}

func (p publication) isRead() bool { return p.value == "" }

func (p *publications) name() string { return "configuration" }
func (p *publications) clients() int { return 3 }
func (p *publications) count() int   { return len(p.history.operations) }

func (p *publications) read(c *client, namespace string) (published, outcome) {
	answer := c.ask("GET", "/api/namespaces/"+namespace+"/history?limit=1&content=true", "")
	if answer.status == 404 {
		return published{}, done
	}
	var found struct {
		Data struct {
			Revisions []struct {
				Revision uint64
				Message  string
			}
		}
	}
	if answer.outcome != done || !answer.into(&found) || len(found.Data.Revisions) == 0 {
		return published{}, unknown
	}
	newest := found.Data.Revisions[0]
	return published{newest.Revision, newest.Message}, done
}

func (p *publications) step(_ context.Context, w *worker) {
	namespace := fmt.Sprintf("chaos-%d", p.generation.next(200))
	asked := w.any()
	var seen published
	found := p.history.do(w.id, publication{namespace: namespace}, func() (any, outcome) {
		var outcome outcome
		seen, outcome = p.read(asked, namespace)
		return seen, outcome
	})
	if found != done {
		return
	}
	step := publication{namespace, strconv.FormatUint(unique(), 10), seen.revision}
	asked = w.any()
	p.history.do(w.id, step, func() (any, outcome) {
		answer := asked.ask("POST", "/api/namespaces/"+url.PathEscape(namespace)+"/publish", encode(map[string]any{
			"changes": []any{map[string]any{"pair": "value", "value": step.value}}, "message": step.value,
			"expected": seen.revision, "create": true,
		}))
		var result struct{ Data struct{ Revision uint64 } }
		switch {
		case answer.status == 409:
			return uint64(0), done
		case answer.outcome != done:
			return nil, answer.outcome
		case !answer.into(&result) || result.Data.Revision == 0:
			return nil, unknown
		}
		return result.Data.Revision, done
	})
}

func (p *publications) check(*worker) error {
	p.history.settle(func(input any) any { return input.(publication).value }, func(operation porcupine.Operation) []any {
		if operation.Input.(publication).value == "" {
			return []any{operation.Output.(published).value}
		}
		return nil
	})
	return p.history.check(porcupine.Model{
		Partition: byKey(func(input any) string { return input.(publication).namespace }),
		Init:      func() any { return published{} },
		Step: func(state, input, output any) (bool, any) {
			step, now := input.(publication), state.(published)
			switch {
			case step.value == "":
				return output == nil || output == now, now
			case step.expected != now.revision:
				return output == nil || output == uint64(0), now
			case output == nil:
				// The number of the revision is not known: it is one more.
				return true, published{now.revision + 1, step.value}
			default:
				return output != uint64(0) && output.(uint64) > now.revision, published{output.(uint64), step.value}
			}
		},
	}, judging)
}
