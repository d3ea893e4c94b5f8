#!/usr/bin/env bash
# Packs what serving and measuring need on a GPU machine without a network; see usage below.
set -euo pipefail

usage() {
    cat <<'TEXT'
Usage: perf/bundle.sh [options]

Packs Triton's server (cut down to what serving needs), Python packages, this source tree and, if asked for, the weights
of the default model into archives that are split into parts, each in a folder of its own: OUT/b1, OUT/b2, ...
Bring all parts into one folder on the other machine and run install.sh (in b1) there. That machine has to have Python,
PyTorch and the packages that perf/bundle_packages.txt says it does not pack.

  --out DIR          where to write; what is there of an older bundle is replaced (default build/bundle)
  --python X.Y       Python of the other machine (default 3.12)
  --glibc N          its glibc is 2.N (default 39); decides which wheels are taken
  --with GROUPS      also pack these groups of bundle_packages.txt, e.g. test,model
  --package REQ      also pack this package, without its dependencies; may be repeated
  --source WHAT      tree (the files as they are), head (the last commit) or none (default tree)
  --part-size MIB    largest part (default 60)
  --help             this text
TEXT
}

die() {
    echo "bundle.sh: $*" >&2
    exit 1
}

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
top=$(dirname "$here")
out=$top/build/bundle
python=3.12
glibc=39
groups=server,client
requirements=()
source=tree
part_mib=60

while [ $# -gt 0 ]; do
    case $1 in
        --help) usage; exit 0 ;;
        --out | --python | --glibc | --with | --package | --source | --part-size)
            [ $# -ge 2 ] || die "$1 needs a value"
            ;;
        *) die "unknown option $1 (see --help)" ;;
    esac
    case $1 in
        --out) out=$2 ;;
        --python) python=$2 ;;
        --glibc) glibc=$2 ;;
        --with) groups=$groups,$2 ;;
        --package) requirements+=("$2") ;;
        --source) source=$2 ;;
        --part-size) part_mib=$2 ;;
    esac
    shift 2
done
[[ $python =~ ^3\.[0-9]+$ ]] || die "--python: $python is not a version such as 3.12"
[[ $glibc =~ ^[0-9]+$ ]] || die "--glibc: $glibc is not a number such as 39"
[[ $part_mib =~ ^[1-9][0-9]*$ ]] || die "--part-size: $part_mib is not a number of MiB"
[[ $source =~ ^(tree|head|none)$ ]] || die "--source: $source is not tree, head or none"

# Any pip will do: it never looks at the Python that it runs in.
pip=()
for candidate in "$top/.venv/bin/python" python3; do
    if "$candidate" -m pip --version > /dev/null 2>&1; then
        pip=("$candidate" -m pip -qq --disable-pip-version-check)
        break
    fi
done
[ ${#pip[@]} -gt 0 ] || die "needs a python3 with pip"
command -v xz > /dev/null || die "needs xz (apt-get install xz-utils)"

platforms=(--platform manylinux1_x86_64 --platform manylinux2010_x86_64 --platform manylinux2014_x86_64)
for ((minor = 5; minor <= glibc; minor++)); do
    platforms+=(--platform "manylinux_2_${minor}_x86_64")
done

# Packages of one or more groups, a line each.
packages() {
    local name requirement
    while read -r name requirement; do
        if [ -n "$requirement" ] && [[ ",$1," == *",$name,"* ]]; then
            echo "$requirement"
        fi
    done < <(grep -v '^#' "$here/bundle_packages.txt")
}

for group in ${groups//,/ }; do
    [ -n "$(packages "$group")" ] || die "bundle_packages.txt has no group $group"
done

install_packages() { # folder requirement...
    "${pip[@]}" install --target "$1" --no-deps --no-compile --only-binary=:all: \
        --implementation cp --python-version "$python" "${platforms[@]}" "${@:2}" ||
        die "cannot fetch all of ${*:2} for Python $python and glibc 2.$glibc"
}

# Leaves of the server's wheel what a model of this Python needs: the binary, the Python backend, one stub, and the
# libraries whose names any of these mentions.
trim_server() { # site
    local libraries=$1/nvidia_pytriton.libs server=$1/pytriton/tritonserver kept=() found library name
    [ -x "$server/python_backend_stubs/$python/triton_python_backend_stub" ] ||
        die "the server's wheel has no stub for Python $python: $(ls "$server/python_backend_stubs" | tr '\n' ' ')"
    find "$1/pytriton" -mindepth 1 -maxdepth 1 ! -name tritonserver ! -name __init__.py -exec rm -rf {} +
    find "$server" -mindepth 1 -maxdepth 1 ! -name bin ! -name backends ! -name python_backend_stubs -exec rm -rf {} +
    find "$server/python_backend_stubs" -mindepth 1 -maxdepth 1 ! -name "$python" -exec rm -rf {} +
    mapfile -t kept < <(find "$server" -type f)
    found=1
    while [ "$found" = 1 ]; do
        found=0
        for library in "$libraries"/*; do
            name=$(basename "$library")
            if [[ " ${kept[*]} " != *" $library "* ]] && grep -aqF "$name" "${kept[@]}"; then
                kept+=("$library")
                found=1
            fi
        done
    done
    for library in "$libraries"/*; do
        [[ " ${kept[*]} " == *" $library "* ]] || rm "$library"
    done
}

trim_site() { # site
    rm -rf "$1/bin"
    find "$1" -type d \( -name tests -o -name __pycache__ \) -prune -exec rm -rf {} +
    find "$1" -type f \( -name '*.a' -o -name '*.pyx' -o -name '*.c' -o -name '*.h' \) -delete
}

copy_source() { # folder
    mkdir -p "$1"
    case $source in
        head) git -C "$top" archive HEAD | tar -x -C "$1" ;;
        tree)
            # Without what was deleted but is still in the index.
            (cd "$top" && git ls-files -z -co --exclude-standard |
                while IFS= read -r -d '' file; do [ ! -e "$file" ] || printf '%s\0' "$file"; done |
                tar -c --null -T -) | tar -x -C "$1"
            ;;
    esac
    git -C "$top" describe --always --dirty=+ > "$1/COMMIT"
}

# Packs a folder as NAME.aa, NAME.ab, ... into the staging folder.
pack() { # name folder
    tar -c --sort=name --owner=0 --group=0 -C "$2" . | xz -T0 -6 |
        split -b "${part_mib}M" - "$stage/parts/$1."
}

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
mkdir -p "$stage/base" "$stage/parts"

echo "fetching packages for Python $python ..."
mapfile -t -O "${#requirements[@]}" requirements < <(packages "${groups//model/}")
install_packages "$stage/base/site" "${requirements[@]}"
trim_server "$stage/base/site"
trim_site "$stage/base/site"
[ "$source" = none ] || copy_source "$stage/base/source"
printf '%s\n' "$python" > "$stage/base/PYTHON"
echo "packing $(du -sh "$stage/base" | cut -f1) ..."
pack base "$stage/base"

if [[ ",$groups," == *,model,* ]]; then
    mapfile -t weights < <(packages model)
    install_packages "$stage/model/site" "${weights[@]}"
    trim_site "$stage/model/site"
    echo "packing $(du -sh "$stage/model" | cut -f1) of weights ..."
    pack model "$stage/model"
fi

rm -rf "$out"/b[0-9]*
mkdir -p "$out"
number=0
for part in "$stage"/parts/*; do
    number=$((number + 1))
    mkdir "$out/b$number"
    mv "$part" "$out/b$number/"
done
(cd "$out" && sha256sum b*/* | sed 's|  b[0-9]*/|  |') > "$stage/SHA256SUMS"
mv "$stage/SHA256SUMS" "$out/b1/"
cp "$here/bundle_install.sh" "$out/b1/install.sh"
chmod 755 "$out/b1/install.sh"
(cd "$out" && du -h b*/*)
