#!/bin/sh
# check_words.sh -- words that only those who were there understand; prints each, fails if there is one.
#
#     sh tools/check_words.sh [ROOT]
#
# A comment or a page explains itself: no tracker's entries ("the" + "issue's bound"), no agreements that a
# reader cannot look up ("as" + "agreed"), no talk of working days ("this" + "session"), no folders that are not
# in the tree ("../" + "shared"). A tolerance has its derivation instead.
set -u
cd "${1:-$(dirname "$0")/..}" || exit 2
list=$(mktemp) || exit 2
trap 'rm -f "$list"' EXIT
find . \( -path ./build -o -path ./.git -o -path ./tools/check_words.sh -o -path ./tests/tree/test_checks.sh \) -prune -o -type f \
    \( -name '*.[ch]' -o -name '*.inc' -o -name '*.def' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cpp' -o -name '*.sh' -o -name '*.py' -o -name '*.md' \
    -o -name '*.yaml' -o -name '*.yml' -o -name '*.txt' -o -name '*.cmake' -o -name Makefile \) -print | sort >"$list"
[ -s "$list" ] || { echo "check_words: found no files, so nothing was checked"; exit 1; }
tracker="(the|this|that|an|our|your|public) issue('s)?([^a-z]|\$)|(^|[^a-z])issue #?[0-9]"
agreement="(as|was|were|is|the|been) agreed|agreed (bound|bar|tolerance|band)"
days="(this|last|next|previous|earlier|same|one) session|session's|between sessions"
places="\.\./shared"
if xargs grep -n -i -E "$tracker|$agreement|$days|$places" <"$list" | sed 's,^\./,,'| grep .; then
    echo "check_words: say what it is, where it stands, or how it is derived"
    exit 1
fi
echo "check_words: $(wc -l <"$list") files explain themselves"
