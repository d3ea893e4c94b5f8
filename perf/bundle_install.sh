#!/usr/bin/env bash
# Installs a bundle of perf/bundle.sh; needs no network.
set -euo pipefail

usage() {
    cat <<'TEXT'
Usage: install.sh TARGET [options]

Makes TARGET/venv over a Python that has PyTorch: our packages first (numpy 1.26 hides a newer one), then everything that
this Python sees. `TARGET/venv/bin/lazuli serve` and running_server() of the source tree then work. Running it again does
nothing unless the bundle or an option is another one. Ends with `lazuli doctor`.

  --python PYTHON    the Python to build on (default python3)
  --source DIR       a source tree to use in place of the bundle's own
  --parts DIR        where the parts of the archives are (default: the folder of install.sh, or ../b1, ../b2, ...)
  --help             this text
TEXT
}

die() {
    echo "install.sh: $*" >&2
    exit 1
}

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
target='' python=python3 source='' folders=("$here" "$here"/../b[0-9]*)
while [ $# -gt 0 ]; do
    case $1 in
        --help) usage; exit 0 ;;
        --python | --source | --parts)
            [ $# -ge 2 ] || die "$1 needs a value"
            case $1 in
                --python) python=$2 ;;
                --source) source=$2 ;;
                --parts) folders=("$2") ;;
            esac
            shift 2
            ;;
        -*) die "unknown option $1 (see --help)" ;;
        *)
            [ -z "$target" ] || die "only one target, not $target and $1"
            target=$1
            shift
            ;;
    esac
done
[ -n "$target" ] || die "say where to install (see --help)"
python=$(command -v "$python") || die "there is no such Python"
[ -z "$source" ] || source=$(cd "$source" && pwd) || die "--source is no folder"

# All parts, checked.
archives=()
staged=$(mktemp -d)
trap 'rm -rf "$staged"' EXIT
while read -r sum name; do
    part=''
    for folder in "${folders[@]}"; do
        [ ! -f "$folder/$name" ] || part=$folder/$name
    done
    if [ -z "$part" ] && [[ $name == model.* ]]; then
        echo "without the default model: $name is not here"
        rm -f "$staged"/model.*
        touch "$staged/no-model"
        continue
    fi
    [ -n "$part" ] || die "$name is missing in ${folders[*]}"
    echo "$sum  $part" | sha256sum -c --status || die "$part is damaged"
    ln -s "$(realpath "$part")" "$staged/$name"
done < "$here/SHA256SUMS"
[ ! -f "$staged/no-model" ] || rm -f "$staged"/model.*
for archive in base model; do
    [ ! -e "$staged/$archive.aa" ] || archives+=("$archive")
done

mkdir -p "$target"
target=$(cd "$target" && pwd)
stamp="$(sha256sum "$here/SHA256SUMS" | cut -d' ' -f1) $python $source ${archives[*]}"
if [ "$(cat "$target/.lazuli-bundle" 2> /dev/null)" != "$stamp" ]; then
    if [ -n "$(ls -A "$target")" ] && [ ! -f "$target/.lazuli-bundle" ]; then
        die "$target has other things in it; choose an empty folder"
    fi
    rm -rf "${target:?}/venv" "$target/source" "$target/site"
    echo unfinished > "$target/.lazuli-bundle"
    for archive in "${archives[@]}"; do
        # Not tar: a bare machine may have no xz.
        cat "$staged/$archive".* | "$python" -c "
import sys, tarfile
with tarfile.open(fileobj=sys.stdin.buffer, mode='r|xz') as archive:
    archive.extractall(sys.argv[1], filter='fully_trusted')" "$target"
    done
    packed=$(cat "$target/PYTHON")
    has=$("$python" -c 'import sys; print(f"{sys.version_info.major}.{sys.version_info.minor}")')
    [ "$has" = "$packed" ] || die "the bundle is for Python $packed, but $python is $has"
    source=${source:-$target/source}
    [ -d "$source/backend_src/lazuli" ] || die "no source tree in $source: pass --source"

    # Without pip: Debian has ensurepip in another package.
    "$python" -m venv --without-pip "$target/venv"
    site=$("$target/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    cp -a "$target/site/." "$site/"
    rm -rf "$target/site"
    # A venv made from a venv sees the base's packages at most, never those of that venv; so they are named here.
    # addsitedir appends, and so what we brought comes first.
    parents=$("$python" -c 'import sys; print([p for p in sys.path if p.endswith(("site-packages", "dist-packages"))])')
    printf '%s\n%s\n%s\n' "$source/backend_src" "$source/client" \
        "import site; list(map(site.addsitedir, $parents))" > "$site/lazuli_bundle.pth"
    printf '#!%s\nfrom lazuli.cli import main\n\nmain()\n' "$target/venv/bin/python" > "$target/venv/bin/lazuli"
    chmod 755 "$target/venv/bin/lazuli"
    echo "$stamp" > "$target/.lazuli-bundle"
fi

"$target/venv/bin/python" -W ignore - <<'PYTHON'
import importlib

for name in ("numpy", "torch", "tokenizers", "safetensors", "transformers", "tritonclient.grpc", "tritonclient.http"):
    try:
        module = importlib.import_module(name)
    except Exception as error:
        print(f"{name}: {type(error).__name__}: {error}")
    else:
        print(f"{name} {getattr(module, '__version__', '')} from {module.__path__[0]}")
PYTHON
if [[ " ${archives[*]} " != *" model "* ]]; then
    # The default model is left out on purpose: no fault of the machine.
    export LAZULI_CHECKPOINT=${LAZULI_CHECKPOINT:-to-be-named}
fi
"$target/venv/bin/lazuli" doctor
echo "run: $target/venv/bin/lazuli serve, or $target/venv/bin/python perf/bench_server.py --help"
