"""Mutants of what pages at a node show of the store: surveys, plans, heat."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

SURVEYS: Final = "tests/integration/test_surveys.py"
HEAT: Final = "tests/unit/test_read_heat.py"
WORKERS: Final = "tests/integration/test_workers.py"
COLLECTION: Final = "tests/integration/test_collection.py"
CONSOLE: Final = "tests/integration/test_console.py"

MUTANTS: Final = (
    Mutant(
        "console: a survey for each who asks",
        "server/upkeep/surveys.py",
        "        if self._under_way is None and self._now_ms()",
        "        if self._now_ms()",
        (SURVEYS,),
    ),
    Mutant(
        "console: a survey that failed takes away what was known",
        "server/upkeep/surveys.py",
        "            self._last = msgspec.structs.replace(self._last, problem=str(error))\n",
        "            self._last = StoreCosts(problem=str(error))\n",
        (SURVEYS,),
    ),
    Mutant(
        "console: a damaged log hides the others",
        "server/upkeep/shared_logs.py",
        "    except BudwoodError as error:\n        return msgspec",
        "    except KeyError as error:\n        return msgspec",
        (SURVEYS,),
    ),
    Mutant(
        "console: heat never cools",
        "server/pagestore/read_heat.py",
        "            self._halved_ms += times * HALVED_MS\n",
        "            return\n",
        (HEAT,),
    ),
    Mutant(
        "console: heat of any volume grows for ever",
        "server/pagestore/read_heat.py",
        "        while len(self.counts) > MOST_BLOCKS:\n",
        "        while not self.counts:\n",
        (HEAT,),
    ),
    Mutant(
        "console: heat of one worker is taken for all",
        "server/http/whole_node.py",
        "        return summed_heat([own, *",
        "        return own or summed_heat([own, *",
        (WORKERS,),
    ),
    Mutant(
        "console: each worker surveys the store",
        "server/http/whole_node.py",
        "        elif call.name == STORE_COSTS.name and self.share.number != 1:\n",
        "        elif call.name == STORE_COSTS.name and not self.share.number:\n",
        (WORKERS,),
    ),
    Mutant(
        "console: a plan is due as soon as it stands",
        "server/upkeep/collector.py",
        "            return plan, self._due_ms(parse_due(",
        "            return plan, 0 * self._due_ms(parse_due(",
        (COLLECTION, CONSOLE),
    ),
)
