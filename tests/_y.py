import anyio, sys
from collections import Counter
from .integration.test_scrub_collected import *


def main():
    for stage in STAGES:
        store = anyio.run(collect, stage)
        keys = sorted(store.liveness.live.keys() & store.objects.keys())
        print(stage, len(store.objects), len(keys), flush=True)
        n = bad = 0
        for key in keys:
            for how in ("missing", "flipped early", "cut"):
                after = damaged(store.objects, key, how)
                if after == store.objects:
                    continue
                n += 1
                try:
                    anyio.run(check, store, after)
                except BaseException as e:
                    if isinstance(e, KeyboardInterrupt):
                        raise
                    bad += 1
                    print("BAD", stage, how, key, str(e)[:900].replace("\n", " "), flush=True)
        print("done", stage, n, bad, flush=True)


main()
