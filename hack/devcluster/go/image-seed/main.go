// SPDX-License-Identifier: Apache-2.0

// Command image-seed gives a running containerd an image whose layers already lie unpacked on this file system.
//
// It reads a plan (JSON) on standard input and, for each layer that containerd does not have yet, commits a snapshot
// made of hard links to the layer's files. Manifest and configuration are written as content; the layers' blobs are
// not: containerd and the kubelet never read them once the snapshots stand. So an image of 5 GB costs directories
// only, and a changed layer costs its own files only.
//
// What keeps what alive, so that a replaced image is collected: image record -> manifest -> configuration -> top
// snapshot (by label) -> its parents. A lease covers the time in which these references do not stand yet.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

const (
	kubernetesNamespace = "k8s.io"
	snapshotter         = "overlayfs"
	managedLabel        = "io.cri-containerd.image"
	snapshotLabel       = "containerd.io/gc.ref.snapshot." + snapshotter
	configLabel         = "containerd.io/gc.ref.content.config"
)

// Plan is what the driver found in the image store.
type Plan struct {
	Names     []string `json:"names"`
	MediaType string   `json:"mediaType"`
	Manifest  []byte   `json:"manifest"`
	Config    []byte   `json:"config"`
	Layers    []Layer  `json:"layers"`
}

// Layer is one unpacked layer; Chain names the stack up to and including it, Parent the stack below.
type Layer struct {
	Chain  string `json:"chain"`
	Parent string `json:"parent"`
	Folder string `json:"folder"`
}

func main() {
	if len(os.Args) != 2 {
		fail(errors.New("usage: image-seed CONTAINERD_SOCKET < PLAN"))
	}
	var plan Plan
	if err := json.NewDecoder(os.Stdin).Decode(&plan); err != nil {
		fail(fmt.Errorf("the plan on standard input is not readable: %w", err))
	}
	if len(plan.Layers) == 0 {
		fail(fmt.Errorf("image %v has no layers", plan.Names))
	}
	linked, err := seed(context.Background(), os.Args[1], plan)
	if err != nil {
		fail(fmt.Errorf("image %v: %w", plan.Names, err))
	}
	fmt.Println(linked)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "image-seed:", err)
	os.Exit(1)
}

// seed returns how many layers were missing.
func seed(ctx context.Context, socket string, plan Plan) (int, error) {
	client, err := containerd.New(socket)
	if err != nil {
		return 0, err
	}
	defer client.Close()
	ctx = namespaces.WithNamespace(ctx, kubernetesNamespace)
	ctx, release, err := client.WithLease(ctx)
	if err != nil {
		return 0, err
	}
	defer release(ctx)

	linked := 0
	for _, layer := range plan.Layers {
		added, err := addLayer(ctx, client.SnapshotService(snapshotter), layer)
		if err != nil {
			return linked, fmt.Errorf("layer %s: %w", layer.Folder, err)
		}
		if added {
			linked++
		}
	}
	target, err := addContent(ctx, client.ContentStore(), plan)
	if err != nil {
		return linked, err
	}
	for _, name := range plan.Names {
		if err := tag(ctx, client, name, target); err != nil {
			return linked, fmt.Errorf("name %s: %w", name, err)
		}
	}
	return linked, nil
}

func addLayer(ctx context.Context, service snapshots.Snapshotter, layer Layer) (bool, error) {
	if _, err := service.Stat(ctx, layer.Chain); err == nil {
		return false, nil
	} else if !errdefs.IsNotFound(err) {
		return false, err
	}
	key := fmt.Sprintf("image-seed-%d-%s", os.Getpid(), layer.Chain)
	mounts, err := service.Prepare(ctx, key, layer.Parent)
	if err != nil {
		return false, err
	}
	folder, err := writableFolder(mounts)
	if err == nil {
		err = hardLink(layer.Folder, folder)
	}
	if err == nil {
		err = service.Commit(ctx, layer.Chain, key)
	}
	if err != nil {
		return false, errors.Join(err, service.Remove(ctx, key))
	}
	return true, nil
}

// writableFolder is where a snapshot's own files go: the upper folder of an overlay, or the one folder of a bottom layer.
func writableFolder(mounts []mount.Mount) (string, error) {
	if len(mounts) != 1 {
		return "", fmt.Errorf("expected one mount for a new snapshot, got %v", mounts)
	}
	if mounts[0].Type == "bind" {
		return mounts[0].Source, nil
	}
	for _, option := range mounts[0].Options {
		if folder, found := strings.CutPrefix(option, "upperdir="); found {
			return folder, nil
		}
	}
	return "", fmt.Errorf("mount %v has no upper folder", mounts[0])
}

// hardLink uses cp: it keeps owners, times, extended attributes (opaque folders) and device nodes (whiteouts).
func hardLink(from, to string) error {
	output, err := exec.Command("cp", "-al", from+"/.", to+"/").CombinedOutput()
	if err != nil {
		return fmt.Errorf("cp -al: %w: %s", err, output)
	}
	return nil
}

func addContent(ctx context.Context, store content.Store, plan Plan) (ocispec.Descriptor, error) {
	var manifest ocispec.Manifest
	if err := json.Unmarshal(plan.Manifest, &manifest); err != nil {
		return ocispec.Descriptor{}, fmt.Errorf("the manifest is not readable: %w", err)
	}
	top := plan.Layers[len(plan.Layers)-1].Chain
	target := descriptor(plan.MediaType, plan.Manifest)
	config := descriptor(manifest.Config.MediaType, plan.Config)
	if config.Digest != manifest.Config.Digest {
		return target, fmt.Errorf("configuration is %s, the manifest says %s", config.Digest, manifest.Config.Digest)
	}
	if err := write(ctx, store, config, plan.Config, snapshotLabel, top); err != nil {
		return target, err
	}
	return target, write(ctx, store, target, plan.Manifest, configLabel, config.Digest.String())
}

func descriptor(mediaType string, data []byte) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
}

// write adds a blob, or the label alone where the blob stands already.
func write(ctx context.Context, store content.Store, blob ocispec.Descriptor, data []byte, label, value string) error {
	labels := map[string]string{label: value}
	err := content.WriteBlob(ctx, store, blob.Digest.String(), bytes.NewReader(data), blob, content.WithLabels(labels))
	if err != nil {
		return err
	}
	_, err = store.Update(ctx, content.Info{Digest: blob.Digest, Labels: labels}, "labels."+label)
	return err
}

// tag points a name at the image and forgets the image it named before: CRI keeps a record of its own for each image
// (named by the configuration's digest) until the image is removed on request, which does not happen here.
func tag(ctx context.Context, client *containerd.Client, name string, target ocispec.Descriptor) error {
	service := client.ImageService()
	previous, err := service.Get(ctx, name)
	if errdefs.IsNotFound(err) {
		_, err = service.Create(ctx, record(name, target))
		return err
	}
	if err != nil || previous.Target.Digest == target.Digest {
		return err
	}
	replaced, err := previous.Config(ctx, client.ContentStore(), nil)
	if _, updateErr := service.Update(ctx, record(name, target)); updateErr != nil {
		return updateErr
	}
	if err != nil {
		return nil
	}
	return forget(ctx, service, previous.Target, replaced.Digest)
}

func record(name string, target ocispec.Descriptor) images.Image {
	return images.Image{Name: name, Target: target, Labels: map[string]string{managedLabel: "managed"}}
}

// forget drops CRI's record of an image that no name points at any more. Running containers keep their snapshots.
func forget(ctx context.Context, service images.Store, target ocispec.Descriptor, config digest.Digest) error {
	records, err := service.List(ctx, "target.digest=="+target.Digest.String())
	if err != nil {
		return err
	}
	for _, other := range records {
		if other.Name != config.String() && !strings.Contains(other.Name, "@") {
			return nil
		}
	}
	for _, other := range records {
		if err := service.Delete(ctx, other.Name); err != nil && !errdefs.IsNotFound(err) {
			return err
		}
	}
	return nil
}
