package github

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

func (h *hub) pullOf(i *ticket) object {
	head, from, repo := h.head(i.pull.head), fakeOwner, h.repo()
	if i.pull.forked {
		head, from = h.forkHead(i.pull.head), forkOwner
		_, r := h.fork()
		repo = r.(object)
	}
	if head == "" {
		head = strings.Repeat("0", 40)
	}
	out := object{
		"number": i.number, "title": i.title, "body": i.body, "user": userOf(i.by), "state": i.state, "draft": i.pull.draft,
		"html_url": fmt.Sprintf("%s/%s/%s/pull/%d", h.srv.URL, fakeOwner, fakeRepo, i.number), "updated_at": i.updated.Format(time.RFC3339),
		"head": object{"ref": i.pull.head, "sha": head, "label": from + ":" + i.pull.head, "repo": repo},
		"base": object{"ref": i.pull.base, "sha": h.head("main"), "label": fakeOwner + ":" + i.pull.base, "repo": h.repo()},
	}
	if i.pull.merge != "" {
		out["merged"], out["merged_by"], out["merge_commit_sha"], out["merged_at"] = true, userOf(i.pull.mergedBy), i.pull.merge, i.pull.ended.Format(time.RFC3339)
	}
	if !i.pull.ended.IsZero() {
		out["closed_at"] = i.pull.ended.Format(time.RFC3339)
	}
	return out
}

// simple is a pull request in a list, which does not say who merged it.
func simple(p object) object {
	delete(p, "merged")
	delete(p, "merged_by")
	return p
}

func (h *hub) listPulls(c call) (int, any) {
	out := []any{}
	for _, i := range h.issues {
		if i.pull != nil && map[bool]string{false: fakeOwner, true: forkOwner}[i.pull.forked]+":"+i.pull.head == c.r.URL.Query().Get("head") {
			out = append(out, simple(h.pullOf(i)))
		}
	}
	return 200, out
}

func (h *hub) openPull(c call) (int, any) {
	branch, forked := strings.CutPrefix(fmt.Sprint(c.body["head"]), forkOwner+":")
	if forked {
		if h.forkHead(branch) == "" || c.as != forkOwner {
			return 422, object{"message": "Validation Failed", "errors": []any{object{"field": "head", "code": "invalid"}}}
		}
		i := h.open(c.as, fmt.Sprint(c.body["title"]), fmt.Sprint(c.body["body"]))
		i.pull = &proposalOf{head: branch, forked: true, base: fmt.Sprint(c.body["base"]), draft: c.body["draft"] == true}
		return 201, h.pullOf(i)
	}
	for _, i := range h.issues {
		if i.pull != nil && i.state == "open" && i.pull.head == c.body["head"] {
			return 422, object{"message": "Validation Failed", "errors": []any{object{"message": "A pull request already exists for olga:" + i.pull.head + ".", "code": "custom"}}}
		}
	}
	if h.head(fmt.Sprint(c.body["head"])) == "" {
		return 422, object{"message": "Validation Failed", "errors": []any{object{"field": "head", "code": "invalid"}}}
	}
	i := h.open(c.as, fmt.Sprint(c.body["title"]), fmt.Sprint(c.body["body"]))
	i.pull = &proposalOf{head: fmt.Sprint(c.body["head"]), base: fmt.Sprint(c.body["base"]), draft: c.body["draft"] == true}
	return 201, h.pullOf(i)
}

func (h *hub) open(by, title, body string) *ticket {
	h.now()
	i := &ticket{number: len(h.issues) + 1, title: title, body: body, by: by, created: h.clock, updated: h.clock, state: "open"}
	h.issues[i.number] = i
	return i
}

func (h *hub) getPull(c call) (int, any) {
	if i := h.ticket(c.p["pull_number"]); i != nil && i.pull != nil {
		return 200, h.pullOf(i)
	}
	return 404, object{"message": "Not Found"}
}

func (h *hub) editPull(c call) (int, any) {
	i := h.ticket(c.p["pull_number"])
	if s, ok := c.body["title"].(string); ok {
		i.title = s
	}
	if s, ok := c.body["body"].(string); ok {
		i.body = s
	}
	return 200, h.pullOf(i)
}

func (n *note) line_() object {
	o := n.object()
	o["path"], o["line"], o["original_line"], o["side"] = n.path, n.line, n.line, "RIGHT"
	o["commit_id"], o["original_commit_id"], o["diff_hunk"], o["pull_request_review_id"] = n.commit, n.commit, "@@ -1 +1 @@\n-base\n+one", 5
	o["html_url"], o["pull_request_url"] = "https://example.com/c", "https://example.com/p"
	return o
}

func (h *hub) listLines(c call) (int, any) {
	n, _ := strconv.Atoi(c.p["pull_number"])
	out := []any{}
	for _, x := range h.lines {
		if x.issue == n {
			out = append(out, x.line_())
		}
	}
	return 200, out
}

func (h *hub) reply(c call) (int, any) {
	for _, x := range h.lines {
		if strconv.FormatInt(x.id, 10) == c.p["comment_id"] {
			o := x.line_()
			o["in_reply_to_id"], o["body"] = x.id, c.body["body"]
			return 201, o
		}
	}
	return 404, object{"message": "Not Found"}
}

func (h *hub) listChecks(c call) (int, any) {
	out := []any{}
	for _, x := range h.checks {
		if x["head_sha"] == c.p["ref"] {
			out = append(out, x)
		}
	}
	return 200, object{"total_count": len(out), "check_runs": out}
}

func (h *hub) addCheck(c call) (int, any) {
	h.seq++
	c.body["id"] = h.seq
	delete(c.body, "actions")
	h.checks = append(h.checks, c.body)
	return 201, c.body
}

func (h *hub) editCheck(c call) (int, any) {
	for _, x := range h.checks {
		if fmt.Sprint(x["id"]) == c.p["check_run_id"] {
			for k, v := range c.body {
				if k != "actions" {
					x[k] = v
				}
			}
			return 200, x
		}
	}
	return 200, object{}
}

func (h *hub) addStatus(c call) (int, any) {
	c.body["sha"] = c.p["sha"]
	h.statuses = append(h.statuses, c.body)
	return 201, object{"state": c.body["state"], "description": c.body["description"], "context": c.body["context"], "creator": userOf(c.as), "created_at": h.now(), "updated_at": h.now()}
}
