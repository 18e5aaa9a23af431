package verify

import (
	"regexp"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// Cause says why a test fails on base + tests.
type Cause string

// The causes. Only CauseRight shows the bug.
const (
	CauseRight      Cause = ""           // an assertion, an expected exception, a panic in the code under test, a hang where the issue is one
	CauseBuild      Cause = "build"      // compile, import or collection
	CauseFixture    Cause = "fixture"    // something the test needs is not there
	CauseNetwork    Cause = "network"    //
	CausePermission Cause = "permission" //
	CauseTime       Cause = "time"       // ran out of time
	CauseSpace      Cause = "space"      // the sandbox's disk is full
	CauseSetup      Cause = "set-up"     // an error outside the test's body, not understood further
)

type causePattern struct {
	cause Cause
	re    *regexp.Regexp
}

// causePatterns are tried in order on the failure's message, never on all the output: a program
// under test may print anything.
var causePatterns = []causePattern{
	{CauseBuild, regexp.MustCompile(`\b(ImportError|ModuleNotFoundError|SyntaxError|IndentationError)\b|module '[^']*' has no attribute|[Cc]annot find (module|package)|ERR_MODULE_NOT_FOUND|does not provide an export named|error during collection|\[build failed\]|\[setup failed\]|cannot import name|Failed to load url|\bLoadError\b|cannot load such file|\berror\[E\d+\]|NoClassDefFoundError|ClassNotFoundException|NoSuchMethodError|NoSuchFieldError|Call to undefined (?:function|method)|Class "[^"]*" not found`)},
	{CauseFixture, regexp.MustCompile(`fixture '[^']*' not found|recursive dependency involving fixture`)},
	{CauseNetwork, regexp.MustCompile(`(?i)connection refused|no such host|name resolution|network is unreachable|\b(ENOTFOUND|ECONNREFUSED|ENETUNREACH|EAI_AGAIN)\b|no route to host|getaddrinfo|dial (tcp|udp)|Max retries exceeded with url`)},
	{CausePermission, regexp.MustCompile(`(?i)permission denied|operation not permitted|\b(EACCES|EPERM|PermissionError)\b|read-only file system`)},
	{CauseFixture, regexp.MustCompile(`(?i)no such file or directory|\bENOENT\b|FileNotFoundError|executable file not found|command not found`)},
	{CauseSpace, regexp.MustCompile(`(?i)no space left on device|\bENOSPC\b|disk quota exceeded`)},
	{CauseTime, regexp.MustCompile(`(?i)test timed out after|panic: test timed out|Exceeded timeout of|context deadline exceeded|Timeout of \d+ms exceeded|Test timed out in|TestTimedOutException|test timeout`)},
}

// assertion recognises a failure that compares what it got with what it wanted: such a message
// may quote a permission or network error and is still the test's own judgement.
var assertion = regexp.MustCompile(`(?i)\bAssertionError\b|ERR_ASSERTION|\bassert(?:ion|ing|ed)?\b|\bwant(ed)?\b|\bexpect(ed)?\b|\bgot\b|not equal|should (be|have|equal)|DID NOT RAISE|!=`)

// causeOf classifies one failure. hang says that the issue is about a hang.
func causeOf(c Case, hang bool) Cause {
	if c.Status == task.Timeout {
		if hang {
			return CauseRight
		}
		return CauseTime
	}
	message := c.Message
	if strings.TrimSpace(message) == "" {
		message = tail(c.Output, 2<<10)
	}
	isAssertion := c.Status == task.Fail && assertion.MatchString(message)
	for _, p := range causePatterns {
		if !p.re.MatchString(message) {
			continue
		}
		if p.cause == CauseTime && hang {
			return CauseRight
		}
		if isAssertion && p.cause != CauseTime {
			return CauseRight
		}
		return p.cause
	}
	if c.Status == task.Errored {
		return CauseSetup
	}
	return CauseRight
}

// loadCause classifies the problem of a file that gave no results: it does not build or import,
// unless the problem names something else that is missing.
func loadCause(problem string) Cause {
	for _, p := range causePatterns {
		if p.re.MatchString(problem) && p.cause != CauseTime {
			return p.cause
		}
	}
	return CauseBuild
}

// means says what the cause tells the agent to do.
func (c Cause) means() string {
	switch c {
	case CauseBuild:
		return "it does not compile, import or collect on the base, which shows no behaviour. Write the test against what exists on the base (or stub the missing symbol) so that an assertion fails"
	case CauseFixture:
		return "something the test needs is missing on the base. Add the fixture to the test's own files, or do without it"
	case CauseNetwork:
		return "it needs a network, and tests have none. Use a local stand-in"
	case CausePermission:
		return "it was refused a permission, which is not the bug. Write below a temporary directory and need no privileges"
	case CauseTime:
		return "it ran out of time, which is not the bug. Make it end by itself with an assertion"
	case CauseSpace:
		return "it filled the sandbox's disk (sandbox.work_size, home_size, tmp_size), which is not the bug. Write less"
	case CauseSetup:
		return "it fails outside its own body (set-up or tear-down). Make the assertion itself fail"
	}
	return ""
}
