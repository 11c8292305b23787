#!/bin/sh
# Installs Ottla while a dev container is built, and leaves a script that starts a broker with the container.
# PACKAGE, PORT and OPTIONS are the options of devcontainer-feature.json. PREFIX and PYTHON are for tests.
set -eu
prefix=${PREFIX:-/usr/local}
share=$prefix/share/ottla

find_python() {
  for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
    # A Python without venv cannot be used: Debian has it in a package of its own.
    if "$candidate" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' > /dev/null 2>&1; then
      echo "$candidate"
      return
    fi
  done
}

python=$(find_python)
if [ -z "$python" ]; then
  if command -v apt-get > /dev/null; then
    apt-get update && apt-get install -y --no-install-recommends python3 python3-venv
  elif command -v apk > /dev/null; then
    apk add --no-cache python3
  fi
  python=$(find_python)
fi
if [ -z "$python" ]; then
  echo "ottla: needs Python 3.11 or newer with venv; add the feature ghcr.io/devcontainers/features/python before this one" >&2
  exit 1
fi

mkdir -p "$share" "$prefix/bin"
"$python" -m venv "$share/venv"
"$share/venv/bin/python" -m pip install --quiet --disable-pip-version-check "${PACKAGE:-ottla}"
ln -sf "$share/venv/bin/ottla" "$prefix/bin/ottla"

cat > "$share/start" << END
#!/bin/sh
# Runs at each start of the container. A broker that does not start must not keep the container from starting.
"$share/venv/bin/ottla" serve --daemon --ephemeral --no-console --port "${PORT:-9092}" ${OPTIONS:-} || true
exec "\$@"
END
chmod 755 "$share/start"
