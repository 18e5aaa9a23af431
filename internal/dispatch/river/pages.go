package river

import (
	"context"
	"fmt"
	"net/http"

	"riverqueue.com/riverui"
)

// Pages are River's own pages about the queue, below a prefix such as "/queue". They only
// show: whatever would change the queue is refused, since only the store may order and cancel.
// The engine must have been started; what the pages do in the background ends with ctx. They
// ask nobody who they are.
func (e *Engine[Tx]) Pages(ctx context.Context, prefix string) (http.Handler, error) {
	h, err := riverui.NewHandler(&riverui.HandlerOpts{Endpoints: riverui.NewEndpoints(e.client, nil), Logger: e.log, Prefix: prefix})
	if err != nil {
		return nil, fmt.Errorf("pages of the queue: %w", err)
	}
	if err := h.Start(ctx); err != nil {
		return nil, fmt.Errorf("pages of the queue: %w", err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			http.Error(w, "these pages only show; daybreak task stop ends a task", http.StatusMethodNotAllowed)
			return
		}
		h.ServeHTTP(w, r)
	}), nil
}
