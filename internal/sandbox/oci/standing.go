package oci

import (
	"fmt"
	"os"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/daybreak-agent/daybreak/internal/sandbox"
)

// standing is all in which sandboxes of root and of an ordinary user differ: which ids they
// get, below which cgroup they live, and how their layers are mounted. Ids are those of the
// process that mounts: for root the host's, for a user those of the holder's namespace,
// where 0 is the user and the numbers from 1 on are the user's subordinate ids.
type standing struct {
	Rootless bool   `json:"rootless"`
	IDs      idPool `json:"ids"`
	Cgroup   string `json:"cgroup"` // parent of the sandboxes' cgroups
}

const (
	userRange  = 1024 // ids of one sandbox of an ordinary user: 64 sandboxes in a usual /etc/subuid
	ownerInBox = 0    // the user's id in the holder's namespace
)

func rootStanding(base uint32) standing {
	return standing{IDs: idPool{First: base, Size: idRange, Count: idRanges}, Cgroup: "/daybreak"}
}

// userStanding is of a user with n subordinate ids.
func userStanding(n uint32, cgroup string) standing {
	return standing{Rootless: true, IDs: idPool{First: 1, Size: userRange, Count: min(n/userRange, idRanges)}, Cgroup: cgroup}
}

// mappings is the user namespace of a sandbox whose range begins at first. A plain file
// system cannot be mounted with other owners by a user, so a user's sandbox runs as the user
// itself: its files are the user's on both sides.
func (st standing) mappings(first uint32) []specs.LinuxIDMapping {
	if !st.Rootless {
		return []specs.LinuxIDMapping{{ContainerID: 0, HostID: first, Size: idRange}}
	}
	return []specs.LinuxIDMapping{
		{ContainerID: 0, HostID: first, Size: sandbox.UID},
		{ContainerID: sandbox.UID, HostID: ownerInBox, Size: 1},
		{ContainerID: sandbox.UID + 1, HostID: first + sandbox.UID, Size: userRange - sandbox.UID},
	}
}

// agent is the id of the sandbox's user.
func (st standing) agent(first uint32) int {
	if st.Rootless {
		return ownerInBox
	}
	return int(first) + sandbox.UID
}

// overlayOptions turn off every feature by which an upper layer refers to anything but its
// own path. Without privileges the marks of an upper layer are attributes of the user's.
func (st standing) overlayOptions() string {
	if st.Rootless {
		return ",userxattr,redirect_dir=nofollow,metacopy=off,index=off,xino=off"
	}
	return ",redirect_dir=off,metacopy=off,index=off,xino=off"
}

// attachLayer places a read-only clone of dir at dst, on which the files of dir's owner
// belong to the sandbox's user.
func (st standing) attachLayer(m *idmaps, dir, dst string) error {
	if st.Rootless {
		return attachOwned(dir, dst)
	}
	return m.attach(dir, dst)
}

// attachOwned is attachLayer for a directory that is the user's own.
func attachOwned(dir, dst string) error {
	src, owner, err := layer(dir)
	if err != nil {
		return err
	}
	if owner != [2]int{ownerInBox, ownerInBox} {
		return fmt.Errorf("%s belongs to another user or group: it must be yours", dir)
	}
	return attach(src, dst, attrRead, -1, false)
}

// fence gives the mount points of a user's sandbox to a root that nothing in it can become,
// as it is with root's sandboxes.
func (st standing) fence(path string, first uint32) error {
	if !st.Rootless {
		return nil
	}
	return os.Lchown(path, int(first), int(first))
}
