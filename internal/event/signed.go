package event

// EvidenceSigned keeps the signed account of a verification as it goes out with the pull request.
// It is written once for each account.
type EvidenceSigned struct {
	Digest       string `json:"digest"`       // "sha256:…" of the file
	Key          string `json:"key_id"`       // that signed it
	Verification int64  `json:"verification"` // seq of the verdict that it accounts for
	Bundle       Text   `json:"bundle"`       // the file, byte for byte
}

// EventKind implements [Payload].
func (EvidenceSigned) EventKind() Kind { return "evidence.signed" }

// Unsigned says in one line why there is no signed account of a verification in the record; it is
// for a summary without one.
func (s *Summary) Unsigned() string {
	switch v := s.Verification; {
	case s.PullRequest != nil:
		return "the change was published without keeping its signed evidence in the record; see evidence.json beside the pull request"
	case v == nil:
		return "the change of the task was not verified yet, so there is no evidence"
	case !v.Kind.Accepted():
		return "the newest verdict is " + string(v.Kind) + "; evidence is signed for a change that is accepted"
	}
	return "the verdict is not signed yet; it is when the change is about to be published"
}
