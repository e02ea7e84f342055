#!/bin/sh
# Behaves as a server does, or as it should not ($MODE): the program of the process helpers' own tests.
if [ "$1" != up ]; then
    echo "$*"
    echo "$POLYSHARD_SERVER $POLYSHARD_TOKEN $POLYSHARD_LONG" >&2
    exit 3
fi
case $MODE in
    good)
        trap 'echo bye; exit 0' TERM
        mkdir -p "$3"
        echo started >>"$3/starts"
        echo "  admin  http://${DOOR:-127.0.0.1:1}"
        echo 'ready in no time'
        echo 'now  WARN shard: a little slow' >&2
        while :; do sleep 0.02; done
        ;;
    early)
        echo 'error: in use' >&2
        exit 7
        ;;
    configured)
        echo "$4"
        cat "$5"
        echo "$EXTRA $POLYSHARD__ADMIN__LISTEN"
        echo ready
        exec sleep 60
        ;;
esac
