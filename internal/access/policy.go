package access

import "net/http"

// Policy is what a route asks of a request before its handler sees it. Every route has one.
type Policy string

// The policies. All but Proven refuse a Host that is not this server's and what another site
// makes a browser ask for, but for following a link.
const (
	// Open is for everybody: assets, signing in.
	Open Policy = "open"
	// Proven is for machines: the handler proves the sender itself, as for webhooks, or tells
	// nothing, as for probes. No cookie and no token counts there.
	Proven Policy = "proven"
	// API needs a viewer, by token or session. A body must be JSON, and refusals are problems.
	API Policy = "api"
	// Page needs a viewer. Who has no session is sent to sign in.
	Page Policy = "page"
	// Operators is Page for a viewer who operates the installation.
	Operators Policy = "operators"
)

// Route is one address of the server with what it asks of a request.
type Route struct {
	Pattern string // of [http.ServeMux]
	Policy  Policy
	Handler http.Handler
}

// Paths of signing in and out, which every page may link to. Out is posted to.
const (
	PathSignIn = "/sign-in" // with next=PATH
	PathOut    = "/sign-out"

	pathLink     = "/sign-in/link"
	pathOIDC     = "/sign-in/oidc"
	pathCallback = "/sign-in/oidc/callback"
)

// ContentPolicy is the Content-Security-Policy of every answer that sets no stricter one:
// everything from here, nothing from elsewhere, no script or style in the page itself.
const ContentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'; object-src 'none'"

// InertPolicy is that of what a task made, which a browser must never act upon.
const InertPolicy = "sandbox; default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

// setHeaders sets what holds for every answer. A handler may narrow it.
func setHeaders(h http.Header, secure bool) {
	h.Set("Content-Security-Policy", ContentPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin") // no-referrer would make the Origin of our own forms null
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
	h.Set("Cache-Control", "no-store")
	if secure {
		h.Set("Strict-Transport-Security", "max-age=31536000")
	}
}

// Artifact sets the headers of bytes that a task made: a browser keeps them as a file, under a
// name of ours, and never shows them as a page.
func Artifact(h http.Header, name string) {
	h.Set("Content-Security-Policy", InertPolicy)
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", `attachment; filename="`+name+`"`)
}
