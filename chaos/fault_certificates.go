package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"math/big"
	"time"
)

// rotateCertificates replaces the certificates of all nodes, then the authority that signs them, in
// the steps that docs/how-to/secure.md describes.
func (f *faults) rotateCertificates(context.Context) error {
	next, err := newAuthority()
	if err != nil {
		return err
	}
	for _, step := range []struct {
		what   string
		change func(*authority, []*authority) (*authority, []*authority)
	}{
		{"all nodes get other certificates", func(signer *authority, trusted []*authority) (*authority, []*authority) {
			return signer, trusted
		}},
		{"a second authority is trusted", func(signer *authority, trusted []*authority) (*authority, []*authority) {
			return signer, append(trusted, next)
		}},
		{"the second authority signs", func(_ *authority, trusted []*authority) (*authority, []*authority) {
			return next, trusted
		}},
		{"the first authority is not trusted any more", func(*authority, []*authority) (*authority, []*authority) {
			return next, []*authority{next}
		}},
	} {
		f.said("%s", step.what)
		if err := f.cluster.security.update(step.change); err != nil {
			return err
		}
		for _, n := range f.cluster.members() {
			if err := f.untilReloaded(n); err != nil {
				return fmt.Errorf("%s: %w", step.what, err)
			}
		}
	}
	return nil
}

// untilReloaded waits until a node shows the certificate that is in its directory.
func (f *faults) untilReloaded(n *node) error {
	wanted := f.cluster.security.serial(n.number)
	c := f.cluster.client(n.number)
	defer c.close()
	var last answer
	var shown *big.Int
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		last = c.ask("POST", "/v1/tls/reload", "")
		connection, err := f.cluster.dial(context.Background(), "tcp", f.cluster.endpoint(n.number, 0))
		if err != nil {
			continue
		}
		shown = connection.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber
		connection.Close()
		if shown.Cmp(wanted) == 0 {
			return nil
		}
	}
	return violated("node %d does not use its new certificate within a minute: it shows %v, not %v; the last answer is %d %s",
		n.number, shown, wanted, last.status, last.body)
}
