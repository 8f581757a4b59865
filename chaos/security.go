package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// security is the certificates of the nodes, whom clients trust, and their token.
//
// The authority is the harness's own, as a company's would be: certificates come in --tls-dir.
type security struct {
	directory string
	mutex     sync.Mutex
	hosts     map[int]*tlsHost
	signer    *authority   // signs new certificates
	trusted   []*authority // by nodes and clients
	token     string       // empty until tokens are required
}

// tlsHost is a node as its certificate names it.
type tlsHost struct {
	address, uuid, directory string
	serial                   *big.Int // of its newest certificate
}

type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newSecurity(directory string) (*security, error) {
	s := &security{directory: directory, hosts: map[int]*tlsHost{}}
	first, err := newAuthority()
	if err != nil {
		return nil, err
	}
	s.signer, s.trusted = first, []*authority{first}
	return s, s.writeBundle(s.bundleFile())
}

func (s *security) bundleFile() string { return filepath.Join(s.directory, "ca.crt") }
func (s *security) tokenFile() string  { return filepath.Join(s.directory, "root.token") }

// readToken reads the token that clients send from now on.
func (s *security) readToken() error {
	content, err := os.ReadFile(s.tokenFile())
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.token = strings.TrimSpace(string(content))
	return err
}

// bearer is the token, or nothing.
func (s *security) bearer() string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.token
}

// addHost gives a new node its files.
func (s *security) addHost(number int, address, directory string) error {
	var random [16]byte
	if _, err := rand.Read(random[:]); err != nil {
		return err
	}
	random[6], random[8] = random[6]&0x0f|0x40, random[8]&0x3f|0x80
	uuid := fmt.Sprintf("%x-%x-%x-%x-%x", random[:4], random[4:6], random[6:8], random[8:10], random[10:])
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return err
	}
	host := &tlsHost{address: address, uuid: uuid, directory: directory}
	s.hosts[number] = host
	return s.renew(host)
}

// renew gives a node another key and certificate, and the authorities that are trusted now.
func (s *security) renew(host *tlsHost) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	name, err := url.Parse("tidelock://tidelock/host/" + host.uuid)
	if err != nil {
		return err
	}
	template := template(host.address)
	template.URIs, template.IPAddresses = []*url.URL{name}, []net.IP{net.ParseIP(host.address)}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	host.serial = template.SerialNumber
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	signed, err := x509.CreateCertificate(rand.Reader, template, s.signer.certificate, &key.PublicKey, s.signer.key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	for name, block := range map[string]*pem.Block{
		"tls.crt": {Type: "CERTIFICATE", Bytes: signed}, "tls.key": {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := replaceFile(filepath.Join(host.directory, name), pem.EncodeToMemory(block)); err != nil {
			return err
		}
	}
	return s.writeBundle(filepath.Join(host.directory, "ca.crt"))
}

func (s *security) writeBundle(path string) error {
	var bundle []byte
	for _, trusted := range s.trusted {
		bundle = append(bundle, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: trusted.certificate.Raw})...)
	}
	return replaceFile(path, bundle)
}

// update changes whom nodes and clients trust, and who signs, and renews the files of all hosts.
func (s *security) update(change func(signer *authority, trusted []*authority) (*authority, []*authority)) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.signer, s.trusted = change(s.signer, s.trusted)
	for _, host := range s.hosts {
		if err := s.renew(host); err != nil {
			return err
		}
	}
	return s.writeBundle(s.bundleFile())
}

// replaceFile replaces a file whole, so that nobody reads a part of it.
func replaceFile(path string, content []byte) error {
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func template(name string) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		panic(err)
	}
	// From yesterday on: the clocks of nodes are set back by an hour. Longer than any run.
	now := time.Now()
	return &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-24 * time.Hour), NotAfter: now.Add(20 * 24 * time.Hour)}
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := template("authority of the tests under faults")
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	signed, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(signed)
	return &authority{certificate, key}, err
}

// serial is that of the newest certificate of a node.
func (s *security) serial(number int) *big.Int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.hosts[number].serial
}

// pool is the authorities that clients trust now.
func (s *security) pool() *x509.CertPool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	pool := x509.NewCertPool()
	for _, trusted := range slices.Clone(s.trusted) {
		pool.AddCert(trusted.certificate)
	}
	return pool
}

// dial connects to a node, with TLS if the cluster has it.
func (c *cluster) dial(ctx context.Context, network, address string) (net.Conn, error) {
	plain, err := (&net.Dialer{Timeout: requestTimeout}).DialContext(ctx, network, address)
	if err != nil || c.security == nil {
		return plain, err
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	connection := tls.Client(plain, &tls.Config{RootCAs: c.security.pool(), ServerName: host, MinVersion: tls.VersionTLS12})
	limited, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := connection.HandshakeContext(limited); err != nil {
		plain.Close()
		// No request has been sent yet: for clients this is a connection that failed.
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	return connection, nil
}
