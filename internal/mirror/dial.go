package mirror

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"
)

// Resolver finds the addresses of a host.
type Resolver func(ctx context.Context, host string) ([]netip.Addr, error)

const maxHops = 3

// client is the only way out: it knows every origin and refuses the rest.
type client struct {
	rt      *http.Transport   // not a Client: redirects are ours to judge
	origins map[string]Origin // "https://host:port" → origin
	hosts   map[string]bool   // "host:port" → may have an internal address
	resolve Resolver
	counts  counts
}

func newClient(cfg Config, strict, plain []Upstream) (*client, error) {
	c := &client{origins: map[string]Origin{}, hosts: map[string]bool{}, resolve: cfg.Resolve}
	if c.resolve == nil {
		c.resolve = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	add := func(o Origin, plainOK bool) error {
		key, host, err := originKey(o.URL)
		if err != nil {
			return err
		}
		if strings.HasPrefix(key, "http:") && !plainOK && !o.Internal {
			return invalid("%s is plain HTTP: use https, or mark the origin as internal", key)
		}
		if had, ok := c.origins[key]; ok && o.Authorization == "" {
			o.Authorization = had.Authorization
		}
		c.origins[key] = o
		c.hosts[host] = c.hosts[host] || o.Internal
		return nil
	}
	for i, ups := range [][]Upstream{strict, plain} {
		for _, u := range ups {
			for _, o := range append([]Origin{u.Origin}, u.CDN...) {
				if err := add(o, i == 1); err != nil {
					return nil, err
				}
			}
		}
	}
	c.rt = &http.Transport{
		Proxy:                  nil, // the environment has no say in where the mirror connects
		DialContext:            c.dial,
		TLSClientConfig:        &tls.Config{RootCAs: cfg.Roots, MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2:      true,
		DisableCompression:     true, // bytes are hashed as they are sent
		MaxIdleConnsPerHost:    16,
		MaxConnsPerHost:        64,
		IdleConnTimeout:        90 * time.Second,
		TLSHandshakeTimeout:    10 * time.Second,
		ResponseHeaderTimeout:  60 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
	}
	return c, nil
}

// originKey returns an address's origin with its port, and host:port.
func originKey(raw string) (key, host string, err error) {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || u.User != nil || u.Opaque != "" || (u.Scheme != "https" && u.Scheme != "http") {
		return "", "", invalid("%q is no http or https address without credentials", raw)
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"https": "443", "http": "80"}[u.Scheme]
	}
	host = net.JoinHostPort(strings.ToLower(u.Hostname()), port)
	return u.Scheme + "://" + host, host, nil
}

// originOf is an address's origin, or "" when it has none.
func originOf(address string) string {
	key, _, err := originKey(address)
	if err != nil {
		return ""
	}
	return key
}

// dial connects to a configured host only. It resolves once, checks the addresses, and
// connects to one that passed; the control hook looks at the socket's own address again, so
// that an answer that changes in between changes nothing.
func (c *client) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	internal, known := c.hosts[strings.ToLower(addr)]
	if !known {
		return nil, bad(ReasonOrigin, "%s is not a configured host", addr)
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	var ips []netip.Addr
	if ip, err := netip.ParseAddr(host); err == nil {
		ips = []netip.Addr{ip}
	} else if ips, err = c.resolve(ctx, host); err != nil {
		return nil, bad(ReasonUpstream, "cannot resolve %s: %v", host, err)
	}
	d := net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	d.ControlContext = func(_ context.Context, _, address string, _ syscall.RawConn) error {
		ap, err := netip.ParseAddrPort(address)
		if err != nil {
			return bad(ReasonAddress, "cannot read the address %q", address)
		}
		return checkAddr(ap.Addr(), internal)
	}
	last := bad(ReasonUpstream, "%s has no address", host)
	for _, ip := range ips {
		if err := checkAddr(ip, internal); err != nil {
			return nil, err // a name that points inside is refused whole
		}
		conn, err := d.DialContext(ctx, network, net.JoinHostPort(ip.Unmap().String(), port))
		if err == nil {
			return conn, nil
		}
		last = err
	}
	return nil, last
}

// never are addresses that no origin has, however it is marked: "this network", link-local
// (where clouds keep their metadata services), multicast and reserved ranges, and the two
// metadata addresses outside link-local.
var never = prefixes("0.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4", "fe80::/10", "ff00::/8",
	"100.100.100.200/32", "fd00:ec2::254/128", "::/128")

// inside are addresses only an internal origin may have; the last three can embed any of them.
var inside = prefixes("127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10",
	"192.0.0.0/24", "198.18.0.0/15", "::1/128", "fc00::/7", "fec0::/10", "64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "::/96")

func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, s := range list {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

func checkAddr(ip netip.Addr, internal bool) error {
	ip = ip.Unmap().WithZone("")
	for _, p := range never {
		if p.Contains(ip) {
			return bad(ReasonAddress, "the upstream's name points at %s, where no registry is", ip)
		}
	}
	if internal {
		return nil
	}
	for _, p := range inside {
		if p.Contains(ip) {
			return bad(ReasonAddress, "the upstream's name points at the internal address %s; mark the origin as internal if that is meant", ip)
		}
	}
	return nil
}

// allowed reports whether an address found in an index or a redirect belongs to the upstream.
func (u *Upstream) allowed(raw string) error {
	key, _, err := originKey(raw)
	if err != nil {
		return bad(ReasonOrigin, "the registry names an address that cannot be used: %q", clip(raw))
	}
	for _, o := range append([]Origin{u.Origin}, u.CDN...) {
		if k, _, err := originKey(o.URL); err == nil && k == key {
			return nil
		}
	}
	return bad(ReasonOrigin, "the registry points to %s, which is not among its configured hosts", clip(key))
}

// fetch gets an address of an upstream and copies at most limit bytes into w. The header set
// is fixed: nothing a client sent is in it. It follows redirects inside the upstream's
// origins only, and never to a weaker scheme.
func (c *client) fetch(ctx context.Context, u *Upstream, address, accept string, limit int64, w io.Writer) (final, ctype string, err error) {
	for hop := 0; ; hop++ {
		if err := u.allowed(address); err != nil {
			return "", "", err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
		if err != nil {
			return "", "", bad(ReasonUpstream, "cannot ask for %q", clip(address))
		}
		req.Header = http.Header{"User-Agent": {"daybreak-mirror"}, "Accept": {accept}, "Accept-Encoding": {"identity"}}
		if auth := c.origins[originOf(address)].Authorization; auth != "" {
			req.Header.Set("Authorization", auth)
		}
		c.counts.fetching(ctx)
		res, err := c.rt.RoundTrip(req)
		if err != nil {
			return "", "", classify(err)
		}
		if res.StatusCode >= 300 && res.StatusCode < 400 && res.StatusCode != http.StatusNotModified {
			next, err := redirect(address, res.Header.Get("Location"), hop)
			res.Body.Close()
			if err != nil {
				return "", "", err
			}
			address = next
			continue
		}
		ctype, err := copyBody(res, limit, tally{w, &c.counts.in})
		return address, ctype, err
	}
}

func copyBody(res *http.Response, limit int64, w io.Writer) (ctype string, err error) {
	defer res.Body.Close()
	switch {
	case res.StatusCode == http.StatusNotFound || res.StatusCode == http.StatusGone:
		return "", errNotFound
	case res.StatusCode != http.StatusOK:
		return "", bad(ReasonUpstream, "the upstream answered %d", res.StatusCode)
	case res.Header.Get("Content-Encoding") != "" && !strings.EqualFold(res.Header.Get("Content-Encoding"), "identity"):
		return "", bad(ReasonUpstream, "the upstream sent a content encoding nobody asked for")
	case res.ContentLength > limit:
		return "", bad(ReasonSize, "the upstream wants to send %d bytes, at most %d are taken", res.ContentLength, limit)
	}
	n, err := io.Copy(w, io.LimitReader(res.Body, limit+1))
	if err != nil {
		return "", classify(err)
	}
	if n > limit {
		return "", bad(ReasonSize, "the upstream sent more than %d bytes", limit)
	}
	return res.Header.Get("Content-Type"), nil
}

func redirect(from, location string, hop int) (string, error) {
	if hop >= maxHops {
		return "", bad(ReasonRedirect, "more than %d redirects", maxHops)
	}
	b, err := url.Parse(from)
	if err != nil {
		return "", bad(ReasonRedirect, "a redirect from an address that cannot be read")
	}
	to, err := b.Parse(location)
	if err != nil || location == "" || to.User != nil || to.Opaque != "" {
		return "", bad(ReasonRedirect, "a redirect to %q", clip(location))
	}
	if to.Scheme != b.Scheme && to.Scheme != "https" {
		return "", bad(ReasonRedirect, "a redirect from %s to %s", b.Scheme, clip(to.Scheme))
	}
	to.Fragment, to.RawFragment = "", ""
	return to.String(), nil
}

// classify keeps our own reason when the transport wrapped it, and names TLS trouble.
func classify(err error) error {
	var r *refusal
	if errors.As(err, &r) {
		return r
	}
	var (
		cert    *tls.CertificateVerificationError
		unknown x509.UnknownAuthorityError
		host    x509.HostnameError
		inv     x509.CertificateInvalidError
		record  tls.RecordHeaderError
		alert   *net.OpError // the type of a TLS alert is not exported; its operation is
	)
	if errors.As(err, &cert) || errors.As(err, &unknown) || errors.As(err, &host) || errors.As(err, &inv) || errors.As(err, &record) || errors.As(err, &alert) && alert.Op == "remote error" {
		return &refusal{status: http.StatusBadGateway, reason: ReasonTLS, msg: "the upstream did not prove who it is", err: err}
	}
	return &refusal{status: http.StatusBadGateway, reason: ReasonUpstream, msg: "the upstream cannot be reached", err: err}
}

// clip makes foreign text safe to show in one line.
func clip(s string) string {
	if len(s) > 120 {
		s = s[:120] + "…"
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r > '~' && r != '…' {
			return '?'
		}
		return r
	}, s)
}
