package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

type etcdClient struct {
	client  *clientv3.Client
	session *concurrency.Session
}

func connectEtcd(port string) client {
	open, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://127.0.0.1:" + port}, DialTimeout: timeout})
	must(err)
	return &etcdClient{client: open}
}

func (c *etcdClient) put(ctx context.Context, key, value string) error {
	_, err := c.client.Put(ctx, key, value)
	return err
}

func (c *etcdClient) putIfExists(ctx context.Context, key, value string) error {
	exists := clientv3.Compare(clientv3.CreateRevision(key), ">", 0)
	answer, err := c.client.Txn(ctx).If(exists).Then(clientv3.OpPut(key, value)).Commit()
	if err == nil && !answer.Succeeded {
		err = errors.New("the key does not exist")
	}
	return err
}

func (c *etcdClient) grant(ctx context.Context, ttl time.Duration, _ string) (string, error) {
	answer, err := c.client.Grant(ctx, int64(ttl.Seconds()))
	if err != nil {
		return "", err
	}
	return strconv.FormatInt(int64(answer.ID), 10), nil
}

func (c *etcdClient) revoke(ctx context.Context, id string) error {
	number, err := strconv.ParseInt(id, 10, 64)
	must(err)
	_, err = c.client.Revoke(ctx, clientv3.LeaseID(number))
	return err
}

func (c *etcdClient) renew(ctx context.Context, ids []string) error {
	for _, text := range ids {
		id, err := strconv.ParseInt(text, 10, 64)
		must(err)
		if _, err := c.client.KeepAliveOnce(ctx, clientv3.LeaseID(id)); err != nil {
			return err
		}
	}
	return nil
}

func (c *etcdClient) watch(ctx context.Context, prefix string, ready func(), seen func(string)) error {
	changes := c.client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	for answer := range changes {
		if err := answer.Err(); err != nil {
			return err
		}
		if answer.Created {
			ready()
		}
		for _, event := range answer.Events {
			seen(string(event.Kv.Value))
		}
	}
	return ctx.Err()
}

func (c *etcdClient) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	if c.session == nil {
		session, err := concurrency.NewSession(c.client)
		if err != nil {
			return nil, err
		}
		c.session = session
	}
	mutex := concurrency.NewMutex(c.session, name)
	if err := mutex.Lock(ctx); err != nil {
		return nil, err
	}
	return mutex.Unlock, nil
}
