package access

// Policy is what a route asks of a request before its handler sees it. Every route has one.
type Policy string

// The policies. All but Proven refuse a Host that is not this server's, and an unsafe method or a
// stream that another site asks for; all set the headers of [Headers].
const (
	// Open is for everybody: probes, assets, signing in.
	Open Policy = "open"
	// Proven is for machines whose requests the handler proves itself, such as webhooks. No cookie
	// counts there.
	Proven Policy = "proven"
	// API needs a viewer, by token or session. Refusals are problem details.
	API Policy = "api"
	// Page needs a viewer with a session. Who has none is sent to sign in.
	Page Policy = "page"
	// Operators needs a viewer who operates the installation.
	Operators Policy = "operators"
)

// Paths of signing in and out, which every page may link to. Out is posted to.
const (
	PathSignIn = "/sign-in" // with next=PATH
	PathOut    = "/sign-out"
)
