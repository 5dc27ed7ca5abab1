// What a container is started with: its arguments and variables, and the files of its volumes.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// command has the paths of mounts replaced by the folders that stand for them.
func (p *pod) command(ctx context.Context) (words, environment []string, err error) {
	folders, err := p.volumes(ctx)
	if err != nil {
		return nil, nil, err
	}
	k := p.container()
	placed := func(text string) string {
		for _, mount := range k.VolumeMounts {
			text = strings.ReplaceAll(text, mount.MountPath, folders[mount.Name])
		}
		return text
	}
	for _, word := range append(append([]string{}, k.Command...), k.Args...) {
		words = append(words, placed(word))
	}
	environment = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.folder()}
	for _, from := range k.EnvFrom {
		if from.SecretRef == nil {
			continue
		}
		secret, err := p.node.api.CoreV1().Secrets(p.object.Namespace).Get(ctx, from.SecretRef.Name, metav1.GetOptions{})
		if err != nil {
			return nil, nil, err
		}
		for name, value := range secret.Data {
			environment = append(environment, name+"="+string(value))
		}
	}
	for _, variable := range k.Env {
		value, err := p.value(ctx, variable)
		if err != nil {
			return nil, nil, err
		}
		environment = append(environment, variable.Name+"="+placed(value))
	}
	return words, environment, nil
}

func (p *pod) folder() string { return filepath.Join(p.node.dir, string(p.object.UID)) }

func (p *pod) value(ctx context.Context, variable v1.EnvVar) (string, error) {
	from := variable.ValueFrom
	switch {
	case from == nil:
		return variable.Value, nil
	case from.SecretKeyRef != nil:
		secret, err := p.node.api.CoreV1().Secrets(p.object.Namespace).Get(ctx, from.SecretKeyRef.Name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		return string(secret.Data[from.SecretKeyRef.Key]), nil
	case from.FieldRef != nil:
		fields := map[string]string{"metadata.name": p.object.Name, "metadata.namespace": p.object.Namespace, "spec.nodeName": p.node.name, "status.podIP": p.address}
		value, known := fields[from.FieldRef.FieldPath]
		if !known {
			return "", fmt.Errorf("%s: this node knows no field %s", variable.Name, from.FieldRef.FieldPath)
		}
		return value, nil
	}
	return "", fmt.Errorf("%s: this node knows no such source", variable.Name)
}

// volumes writes the files of ConfigMaps and Secrets, and returns each volume's folder.
func (p *pod) volumes(ctx context.Context) (map[string]string, error) {
	folders := map[string]string{}
	for _, volume := range p.object.Spec.Volumes {
		at := filepath.Join(p.folder(), volume.Name)
		if err := os.MkdirAll(at, 0o755); err != nil {
			return nil, err
		}
		folders[volume.Name] = at
		files := map[string][]byte{}
		switch {
		case volume.ConfigMap != nil:
			object, err := p.node.api.CoreV1().ConfigMaps(p.object.Namespace).Get(ctx, volume.ConfigMap.Name, metav1.GetOptions{})
			if err != nil {
				return nil, err
			}
			for name, text := range object.Data {
				files[name] = []byte(text)
			}
		case volume.Secret != nil:
			object, err := p.node.api.CoreV1().Secrets(p.object.Namespace).Get(ctx, volume.Secret.SecretName, metav1.GetOptions{})
			if err != nil {
				return nil, err
			}
			files = object.Data
		}
		for name, content := range files {
			if err := os.WriteFile(filepath.Join(at, name), content, 0o644); err != nil {
				return nil, err
			}
		}
	}
	return folders, nil
}
