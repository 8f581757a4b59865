package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// outcome is what a client knows of its operation.
type outcome int

const (
	done    outcome = iota
	refused         // it did not happen, and will not
	unknown         // it may have happened, or may yet
)

// answer of a node to a request.
type answer struct {
	outcome outcome
	status  int // 0 without an answer
	version string
	body    []byte
}

// silent drops what go-redis logs about connections: the history says what was refused.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

const requestTimeout = 5 * time.Second

// client sends requests to one node. A write is never repeated: net/http repeats only reads, and
// go-redis is told not to.
type client struct {
	base   string
	bearer string // the value of the header Authorization, or empty
	http   http.Client
	redis  *redis.Client
}

// client makes a client of one node.
func (c *cluster) client(number int) *client {
	made := &client{base: "http://" + c.endpoint(number, 0)}
	transport := &http.Transport{MaxIdleConns: 4, ResponseHeaderTimeout: requestTimeout, DialContext: c.dial}
	options := &redis.Options{Addr: c.endpoint(number, 1), Protocol: 2, MaxRetries: -1, PoolSize: 2, DialTimeout: requestTimeout,
		ReadTimeout: requestTimeout, ContextTimeoutEnabled: true, DisableIdentity: true, DialerRetries: 1, Dialer: c.dial}
	if c.security != nil {
		made.base = "https://" + c.endpoint(number, 0)
		transport.DialTLSContext = c.dial
		options.Password = c.security.bearer()
		made.bearer = "Bearer " + options.Password
	}
	made.http = http.Client{Timeout: requestTimeout, Transport: transport}
	made.redis = redis.NewClient(options)
	return made
}

func (c *client) close() {
	c.http.CloseIdleConnections()
	_ = c.redis.Close()
}

// request makes a request with headers, given as names and values.
func (c *client) request(ctx context.Context, method, path, body string, headers ...string) *http.Request {
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	if c.bearer != "" {
		request.Header.Set("Authorization", c.bearer)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	return request
}

// stream opens a stream of events, without a limit of its time but that of the context.
func (c *client) stream(ctx context.Context, path string, headers ...string) (*http.Response, error) {
	unlimited := &http.Client{Transport: c.http.Transport}
	return unlimited.Do(c.request(ctx, "GET", path, "", headers...))
}

// ask sends a request with headers, given as names and values.
func (c *client) ask(method, path, body string, headers ...string) answer {
	request := c.request(context.Background(), method, path, body, headers...)
	response, err := c.http.Do(request)
	if err != nil {
		return answer{outcome: unsent(err)}
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{outcome: unknown}
	}
	found := answer{status: response.StatusCode, version: response.Header.Get("ETag"), body: content}
	switch {
	case response.StatusCode < 300:
		found.outcome = done
	case response.StatusCode == 504 || response.StatusCode == 500:
		found.outcome = unknown
	default:
		found.outcome = refused
	}
	return found
}

// unsent says whether an error means that the request has not left.
func unsent(err error) outcome {
	var failed *net.OpError
	if errors.As(err, &failed) && failed.Op == "dial" {
		return refused
	}
	return unknown
}

// command sends a command of the Redis protocol.
func (c *client) command(arguments ...any) (any, outcome) {
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	reply, err := c.redis.Do(ctx, arguments...).Result()
	switch {
	case err == nil || errors.Is(err, redis.Nil):
		return reply, done
	case strings.HasPrefix(err.Error(), "CLUSTERDOWN"), strings.HasPrefix(err.Error(), "TRYAGAIN"),
		strings.HasPrefix(err.Error(), "MISCONF"):
		return nil, refused
	default:
		return nil, unsent(err)
	}
}

// into decodes the body of an answer.
func (a answer) into(value any) bool { return json.Unmarshal(a.body, value) == nil }

func encode(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(text)
}
