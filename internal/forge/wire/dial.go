package wire

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// newRoundTripper connects to the one host of u and looks at the address of the socket before
// it connects, so that a name that changes its mind in between changes nothing.
func newRoundTripper(cfg Config, u *url.URL) http.RoundTripper {
	port := u.Port()
	if port == "" {
		port = map[string]string{"https": "443", "http": "80"}[u.Scheme]
	}
	only := net.JoinHostPort(strings.ToLower(u.Hostname()), port)
	d := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	d.ControlContext = func(_ context.Context, _, address string, _ syscall.RawConn) error {
		ap, err := netip.ParseAddrPort(address)
		if err != nil {
			return &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("cannot read the address %q", address)}
		}
		return checkAddr(cfg.Name, ap.Addr(), cfg.Internal)
	}
	return &http.Transport{
		Proxy: nil, // the environment has no say in where a token goes
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if strings.ToLower(addr) != only {
				return nil, &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("%s is not the configured host %s", addr, only)}
			}
			return d.DialContext(ctx, network, addr)
		},
		TLSClientConfig:        &tls.Config{RootCAs: cfg.Roots, MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2:      true,
		MaxIdleConnsPerHost:    8,
		MaxConnsPerHost:        16,
		IdleConnTimeout:        90 * time.Second,
		TLSHandshakeTimeout:    10 * time.Second,
		ResponseHeaderTimeout:  60 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
	}
}

// checkAddr refuses what no forge has (link-local, where clouds keep their metadata, multicast,
// unspecified), and addresses inside the network unless the operator says that it is there.
func checkAddr(name string, ip netip.Addr, internal bool) error {
	ip = ip.Unmap().WithZone("")
	refuse := func(why, fix string) error {
		return &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("the address of %s is %s, %s", name, ip, why), Fix: fix}
	}
	metadata := []netip.Addr{netip.MustParseAddr("100.100.100.200"), netip.MustParseAddr("fd00:ec2::254")}
	for _, m := range metadata {
		if ip == m {
			return refuse("which is a cloud's metadata service", "")
		}
	}
	never := []string{"0.0.0.0/8", "240.0.0.0/4"}
	if ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified() || in(ip, never) {
		return refuse("where no forge is", "")
	}
	if internal {
		return nil
	}
	inside := []string{
		"100.64.0.0/10", "192.0.0.0/24", "198.18.0.0/15", "fec0::/10", // and those that can embed any of them:
		"64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "::/96",
	}
	if ip.IsLoopback() || ip.IsPrivate() || in(ip, inside) {
		return refuse("inside the network", "mark the forge as internal if that is meant")
	}
	return nil
}

func in(ip netip.Addr, prefixes []string) bool {
	for _, p := range prefixes {
		if netip.MustParsePrefix(p).Contains(ip) {
			return true
		}
	}
	return false
}
