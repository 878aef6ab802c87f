#!/bin/sh
# Makes the site of the documents and checks its links, as `make docs` does.
#
#   site.sh REPOSITORY
set -eu
cd "$1"
tools/python.sh build/venv-publish tools/publish-requirements.txt
build/venv-publish/bin/python -B tests/docs/site_check.py .
exec build/venv-publish/bin/python -B tools/docs_site.py
