package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

type tidelockClient struct {
	address string
	http    *http.Client
	// For locks.
	lease string
}

func connectTidelock(port string) client {
	transport := &http.Transport{MaxIdleConnsPerHost: 256}
	return &tidelockClient{address: "127.0.0.1:" + port, http: &http.Client{Transport: transport}}
}

// Sends a request and decodes the JSON of its answer into `found`, unless that is nil.
func (c *tidelockClient) call(ctx context.Context, method, path string, body []byte, found any) error {
	request, err := http.NewRequestWithContext(ctx, method, "http://"+c.address+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	answer, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode >= 300 {
		return fmt.Errorf("%d: %s", answer.StatusCode, content)
	}
	if found == nil {
		return nil
	}
	return json.Unmarshal(content, found)
}

func encoded(value any) []byte {
	text, err := json.Marshal(value)
	must(err)
	return text
}

func (c *tidelockClient) put(ctx context.Context, key, value string) error {
	return c.call(ctx, http.MethodPut, "/v1/keys/"+key, []byte(value), nil)
}

func (c *tidelockClient) putIfExists(ctx context.Context, key, value string) error {
	transaction := map[string]any{
		"if":   []any{map[string]any{"key": key, "exists": true}},
		"then": []any{map[string]any{"put": map[string]any{"key": key, "val": value}}},
	}
	var found struct{ Succeeded bool }
	err := c.call(ctx, http.MethodPost, "/v1/transactions", encoded(transaction), &found)
	if err == nil && !found.Succeeded {
		err = errors.New("the key does not exist")
	}
	return err
}

func (c *tidelockClient) grant(ctx context.Context, ttl time.Duration, tag string) (string, error) {
	wanted := map[string]any{"ttl": fmt.Sprintf("%dms", ttl.Milliseconds())}
	if tag != "" {
		wanted["tag"] = tag
	}
	var found struct{ Id string }
	err := c.call(ctx, http.MethodPost, "/v1/leases", encoded(wanted), &found)
	return found.Id, err
}

func (c *tidelockClient) revoke(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, "/v1/leases/"+url.PathEscape(id), nil, nil)
}

func (c *tidelockClient) renew(ctx context.Context, ids []string) error {
	var found struct {
		Leases []struct {
			Id      string
			Problem string
		}
	}
	err := c.call(ctx, http.MethodPost, "/v1/leases/renew", encoded(map[string]any{"ids": ids}), &found)
	if err == nil && len(found.Leases) != len(ids) {
		err = errors.New("not every lease was answered")
	}
	for _, lease := range found.Leases {
		if err == nil && lease.Problem != "" {
			err = errors.New(lease.Problem)
		}
	}
	return err
}

// A watch reads its connection itself: with net/http, ten thousand of them would measure this program.
func (c *tidelockClient) watch(ctx context.Context, prefix string, ready func(), seen func(string)) error {
	connection, err := net.Dial("tcp", c.address)
	if err != nil {
		return err
	}
	defer connection.Close()
	stop := context.AfterFunc(ctx, func() { connection.Close() })
	defer stop()
	path := "/v1/watch?after=now&prefix=" + url.QueryEscape(prefix)
	if _, err := fmt.Fprintf(connection, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", path, c.address); err != nil {
		return err
	}
	lines := bufio.NewReaderSize(connection, 1<<10)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return err
		}
		if strings.HasPrefix(line, "HTTP/1.1 ") && !strings.HasPrefix(line, "HTTP/1.1 200") {
			return errors.New(strings.TrimSpace(line))
		}
		if strings.HasPrefix(line, "event: live") {
			ready()
		}
		if _, behind, found := strings.Cut(line, `"val":"`); found {
			value, _, _ := strings.Cut(behind, `"`)
			seen(value)
		}
	}
}

func (c *tidelockClient) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	if c.lease == "" {
		lease, err := c.grant(ctx, leaseTTL, name)
		if err != nil {
			return nil, err
		}
		c.lease = lease
	}
	path := "/v1/locks/" + name
	acquire := map[string]any{"lease": c.lease, "wait": "30s"}
	var found struct{ Fence uint64 }
	if err := c.call(ctx, http.MethodPost, path+"/acquire", encoded(acquire), &found); err != nil {
		return nil, err
	}
	if found.Fence == 0 {
		return nil, errors.New("no fence")
	}
	release := func(ctx context.Context) error {
		return c.call(ctx, http.MethodPost, path+"/release", encoded(map[string]any{"lease": c.lease}), nil)
	}
	return release, nil
}
