// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"

	"deviceshare/view/usage"
)

// largestPage bounds what is read of one device plugin, in bytes: 8 devices with a hundred sharers
// each are 1 MiB.
const largestPage = 16 << 20

func (r *Reader) fetchMetrics(ctx context.Context, p *corev1.Pod) (*usage.Page, error) {
	port, err := portOf(p)
	if err != nil {
		return nil, err
	}
	tunnel, err := r.openTunnel(p)
	if err != nil {
		return nil, fmt.Errorf("reach its device plugin %s through the API server: %w", p.Name, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = tunnel.Close() })
	defer tunnel.Close()
	defer stop()
	conn, err := openStream(tunnel, port)
	if err != nil {
		return nil, fmt.Errorf("reach port %d of its device plugin %s: %w", port, p.Name, err)
	}
	page, err := r.requestMetrics(ctx, conn)
	if err != nil {
		if said := conn.remoteError(); said != "" {
			err = fmt.Errorf("%s: %w", said, err)
		}
		return nil, fmt.Errorf("read the metrics of its device plugin %s: %w", p.Name, err)
	}
	return page, nil
}

// openTunnel opens a tunnel to a pod: by a websocket, or by SPDY where something between does not
// let one through, as kubectl does.
func (r *Reader) openTunnel(p *corev1.Pod) (httpstream.Connection, error) {
	target := r.client.CoreV1().RESTClient().Post().Resource("pods").Namespace(p.Namespace).Name(p.Name).SubResource("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(r.config)
	if err != nil {
		return nil, err
	}
	old := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, target)
	websocket, err := portforward.NewSPDYOverWebsocketDialer(target, r.config)
	if err != nil {
		return nil, err
	}
	tunnel, _, err := portforward.NewFallbackDialer(websocket, old, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	}).Dial(portforward.PortForwardProtocolV1Name)
	return tunnel, err
}

// requestMetrics asks for the page on a connection. The certificate is signed by nobody, see
// package endpoint; it is the API server that vouches for the pod.
func (r *Reader) requestMetrics(ctx context.Context, conn net.Conn) (*usage.Page, error) {
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialTLSContext: func(context.Context, string, string) (net.Conn, error) {
			return tls.Client(conn, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}), nil
		},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://device-plugin/metrics", http.NoBody)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+r.token)
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	body := io.LimitReader(answer.Body, largestPage)
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(body, 1<<10))
		return nil, fmt.Errorf("%s: %s", answer.Status, strings.TrimSpace(string(text)))
	}
	return usage.Read(body)
}

// stream is one connection through a tunnel. client-go's PortForwarder would open a port of this
// machine for it, for everybody on it, and write what went wrong into a log.
type stream struct {
	httpstream.Stream
	// said receives what the other end says went wrong, once.
	said chan string
}

// openStream opens a connection to a port of the pod at the other end.
func openStream(tunnel httpstream.Connection, port int32) (*stream, error) {
	header := http.Header{}
	header.Set(corev1.StreamType, corev1.StreamTypeError)
	header.Set(corev1.PortHeader, strconv.Itoa(int(port)))
	header.Set(corev1.PortForwardRequestIDHeader, "0")
	errors, err := tunnel.CreateStream(header)
	if err != nil {
		return nil, err
	}
	_ = errors.Close() // nothing is written to it
	header.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := tunnel.CreateStream(header)
	if err != nil {
		return nil, err
	}
	s := &stream{Stream: data, said: make(chan string, 1)}
	go func() {
		text, _ := io.ReadAll(io.LimitReader(errors, 1<<10))
		s.said <- strings.TrimSpace(string(text))
	}()
	return s, nil
}

// remoteError is what the other end said went wrong, "" if nothing. It waits a moment: what went
// wrong comes on another stream than the end of the data.
func (s *stream) remoteError() string {
	select {
	case text := <-s.said:
		return text
	case <-time.After(time.Second):
		return ""
	}
}

// tunnelled is the address of both ends.
type tunnelled struct{}

func (tunnelled) Network() string { return "tunnel" }

func (tunnelled) String() string { return "tunnel" }

func (*stream) LocalAddr() net.Addr { return tunnelled{} }

func (*stream) RemoteAddr() net.Addr { return tunnelled{} }

// SetDeadline implements net.Conn: whoever has waited long enough closes the tunnel.
func (*stream) SetDeadline(time.Time) error { return nil }

func (*stream) SetReadDeadline(time.Time) error { return nil }

func (*stream) SetWriteDeadline(time.Time) error { return nil }
