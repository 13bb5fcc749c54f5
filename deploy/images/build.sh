#!/bin/sh
# Builds an image of this folder with podman, docker or buildah, and puts it where a cluster finds it.
#   deploy/images/build.sh operator                  localhost/paddock-operator:VERSION
#   deploy/images/build.sh demo                      localhost/paddock-demo:VERSION, for the examples
#   ... --load kind                                  into every node of kind, minikube, k3d, or of
#                                                    k3s or containerd (ctr) on this machine
#   ... --push registry.example/you/paddock-operator:0.1.0
#   ... --save FILE                                  as an archive, to be loaded elsewhere
#   ... --release                                    refuse a base that is not named by its digest
# Environment: TOOL (podman, docker, buildah), BASE and BUILDER (images with Python 3.11 or newer,
# the second with pip), CLUSTER (of kind, minikube, k3d, where it is not the usual one), REVISION.
set -eu

fail() {
  echo "build.sh: $1" >&2
  [ -z "${2:-}" ] || echo "  hint: $2" >&2
  exit 2
}

steps=1 step=0
tell() { # the tools show how far each step is
  step=$((step + 1))
  echo "build.sh: step $step of $steps: $1" >&2
}

cd "$(dirname "$0")/../.."
what=${1:-} load='' push='' save='' release=''
[ -n "$what" ] && [ -f "deploy/images/$what.Containerfile" ] ||
  fail "'$what' is not an image of deploy/images" "operator, or demo"
shift
while [ $# -gt 0 ]; do
  case $1 in
    --release) release=yes && shift && continue ;;
    --load | --push | --save) [ $# -ge 2 ] || fail "$1 needs a value" ;;
    *) fail "'$1' is not a flag of build.sh" "--load, --push, --save or --release" ;;
  esac
  case $1 in
    --load) load=$2 ;;
    --push) push=$2 ;;
    --save) save=$2 ;;
  esac
  shift 2
done
case $load in
  '' | kind | minikube | k3d | k3s | ctr) ;;
  *) fail "--load '$load' is not known" "kind, minikube, k3d, k3s or ctr; else --push or --save" ;;
esac
[ -z "$load" ] || command -v "$load" >/dev/null || fail "--load $load needs the program $load on PATH"
case "$release ${BASE:-}" in
  'yes '*@sha256:*) ;;
  yes*) fail "a release names its base by digest, not '${BASE:-}'" \
    "BASE=docker.io/library/python:3.12-slim@sha256:... as your registry shows it" ;;
esac

is_usable() { # docker's client is of no use without its service
  command -v "$1" >/dev/null && { [ "$1" != docker ] || docker info >/dev/null 2>&1; }
}
tool=${TOOL:-}
for one in podman docker buildah; do
  [ -n "$tool" ] || ! is_usable "$one" || tool=$one
done
[ -n "$tool" ] || fail "no podman, docker or buildah here" "apt-get install buildah, for example"

version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' src/paddock/__init__.py)
revision=${REVISION:-$(git rev-parse HEAD 2>/dev/null || echo unknown)}
name=localhost/paddock-$what:$version
label=org.opencontainers.image
set -- --label "$label.version=$version" --label "$label.revision=$revision"
[ -z "${BASE:-}" ] || set -- "$@" --build-arg "BASE=$BASE" --label "$label.base.name=$BASE"
[ -z "${BUILDER:-}" ] || set -- "$@" --build-arg "BUILDER=$BUILDER"
[ "$tool" = docker ] || set -- "$@" --layers --timestamp 0 # the same source gives the same image
[ -z "$push" ] || steps=$((steps + 1))
[ -z "$load$save" ] || steps=$((steps + 1))
[ -z "$load" ] || steps=$((steps + 1))
tell "build $name with $tool"
"$tool" build "$@" -f "deploy/images/$what.Containerfile" -t "$name" .

if [ -n "$push" ]; then
  tell "push to $push"
  "$tool" tag "$name" "$push"
  "$tool" push "$push"
  echo "pushed; next: paddock operator install --image $push"
fi
[ -n "$load$save" ] || exit 0
[ -z "$save" ] || rm -f -- "$save" # buildah adds to a file that is there
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
archive=${save:-$folder/image.tar}
tell "write $name to $archive"
case $tool in
  buildah) buildah push "$name" "docker-archive:$archive:$name" ;;
  *) "$tool" save -o "$archive" "$name" ;;
esac
[ -z "$load" ] || tell "copy it to every node ($load)"
case $load in
  kind) kind load image-archive "$archive" ${CLUSTER:+--name "$CLUSTER"} ;;
  minikube) minikube ${CLUSTER:+-p "$CLUSTER"} image load "$archive" ;;
  k3d) k3d image import "$archive" ${CLUSTER:+-c "$CLUSTER"} ;;
  k3s) k3s ctr images import "$archive" ;;
  ctr) ctr -n k8s.io images import "$archive" ;;
esac
[ -z "$load" ] || echo "$name is on the nodes ($load)"
