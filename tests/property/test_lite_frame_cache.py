"""The lite client's frames of packed frames, against a dict: it gives what the view holds, or nothing."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from budwood.lite.frame_cache import FrameCache
from budwood.volume.frame import Frame, pack_frame
from budwood.volume.pageset import PageSet

SIZE = 512
PAGE = st.integers(1, 40)


@dataclass
class Step:
    what: str
    page: int
    pages: list[int]
    others: set[int]


_steps = st.lists(
    st.builds(
        Step,
        st.sampled_from(["put", "take", "drop", "cut"]),
        PAGE,
        st.sets(PAGE, min_size=1, max_size=8).map(lambda pages: sorted(pages)),
        st.sets(PAGE),
    ),
    max_size=30,
)


@given(_steps, st.integers(0, 600))
def test_it_gives_the_views_own_pages_and_stays_within_its_bound(steps: list[Step], limit: int) -> None:
    frames = FrameCache(limit)
    content = dict.fromkeys(range(1, 41), 0)
    """Which version of each page is the view's."""
    for version, step in enumerate(steps, 1):
        if step.what == "put":
            # What an answer holds of the view is what the view holds; the rest of a frame has been overwritten.
            valid = PageSet(page for page in step.pages if page not in step.others)
            data = [_page(page, content[page] if page in valid else -version) for page in step.pages]
            info, stored = pack_frame(step.pages, data)
            frames.put("a test", Frame(info, valid, stored))
        elif step.what == "take":
            found = frames.take(step.page, SIZE)
            if found is not None:
                assert step.page in found
                assert found == {page: _page(page, content[page]) for page in found}
        elif step.what == "drop":
            frames.drop(PageSet(step.others))
            content.update(dict.fromkeys(step.others, version))
        else:
            frames.cut(step.page)
            content.update((page, version) for page in range(step.page + 1, 41))
        assert frames.bytes <= limit


def _page(page: int, version: int) -> bytes:
    return page.to_bytes(4, "big") + version.to_bytes(4, "big", signed=True) + bytes(SIZE - 8)


def test_what_it_holds_it_gives_once() -> None:
    frames = FrameCache(1 << 20)
    info, stored = pack_frame([3, 4], [_page(3, 1), _page(4, 1)])
    frames.put("a test", Frame(info, PageSet([3, 4]), stored))
    assert frames.take(4, SIZE) == {3: _page(3, 1), 4: _page(4, 1)}
    assert frames.take(3, SIZE) is None
    assert frames.bytes == 0
