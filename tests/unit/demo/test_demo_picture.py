"""The picture shows what the tiers have counted: a line for each, by the time of the run and by the day of the events."""

import xml.etree.ElementTree as ET

from moldau.demo.tiers import Timeline, draw


def lines(svg: str) -> list[list[tuple[float, float]]]:
    found = ET.fromstring(svg).findall("{*}polyline")
    return [[(float(x), float(y)) for x, y in (point.split(",") for point in each.attrib["points"].split())] for each in found]


def test_tiers_are_drawn_side_by_side() -> None:
    whole = {"producer": 100, "local": 100, "lake": 99}
    moments: tuple[tuple[float, dict[str, int]], ...] = ((0.0, {}), (5.0, {"producer": 50, "local": 30}), (10.0, whole))
    days = {"producer": {15_706: 60, 15_707: 40}, "local": {15_706: 60, 15_707: 40}, "lake": {15_706: 60}}
    svg = draw(Timeline(moments, days), "a<b", "loss")
    assert "a&lt;b" in svg
    assert "01 Jan 2013" in svg
    producer, local, lake, *by_day = lines(svg)
    assert [x for x, _ in producer] == [x for x, _ in lake] == [80, 475, 870]
    assert producer[0][1] == lake[1][1] > local[1][1] > producer[1][1] > lake[2][1] > producer[2][1] == local[2][1]
    assert by_day[0] == by_day[1]
    assert by_day[2][1][1] > by_day[0][1][1], "a day that is missing is 0"


def test_no_label_is_cut_at_an_edge() -> None:
    """Claim: every text stands within the picture, also under the last day and with a long topic's name. (A letter takes 0.5 em.)"""
    days = {tier: {15_706: 336_776, 16_071: 1} for tier in ("producer", "local", "lake")}
    for topic in ("flights", "x" * 249):
        root = ET.fromstring(draw(Timeline(((0.0, {}), (86_399.0, {"producer": 336_776})), days), topic, "loss hidden by duplication"))
        for text in root.findall("{*}text"):
            width = 0.5 * float(text.get("font-size", "12")) * len(text.text or "")
            x = float(text.attrib["x"]) - {"start": 0.0, "middle": width / 2, "end": width}[text.get("text-anchor", "start")]
            assert x >= 0, text.text
            assert x + width <= 900, text.text


def test_a_run_without_events_has_a_picture_too() -> None:
    assert [len(each) for each in lines(draw(Timeline(((0.0, {}),), {}), "t", "complete"))] == [1, 1, 1, 0, 0, 0]
