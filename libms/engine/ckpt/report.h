// The output of ms-ckpt, as text for people and as one JSON document (schema 1) for programs. Pure functions from
// results to text.
#pragma once

#include <string>
#include <vector>

#include "ckpt/bench.h"
#include "ckpt/diff.h"
#include "ckpt/directory.h"
#include "ckpt/prune.h"
#include "ckpt/repair.h"

namespace ms::ckpt {

// ls: the checkpoints of a directory as list() gives them, and what a run would resume from.
const Found* resume_point(const std::vector<Found>& found);
// Why one is not complete; empty where it is. A save or a deletion that is under way looks like one that was killed.
std::string why(const Found& found);
std::string list_text(const std::string& dir, const std::vector<Found>& found, double now_wall_s);
std::string list_json(const std::string& dir, const std::vector<Found>& found);

// show: one checkpoint, whose manifest is sound. JSON always has everything.
std::string show_text(const Found& found, bool parameters);
std::string show_json(const Found& found);
std::string verify_text(const std::vector<Verified>& verified);
std::string verify_json(const std::vector<Verified>& verified);

// diff: `all` lists the states that are equal too.
std::string diff_text(const std::string& a, const std::string& b, const Diff& diff, bool all);
std::string diff_json(const std::string& a, const std::string& b, const Diff& diff);

// prune: what went, or would.
std::string prune_text(const Pruned& pruned);
std::string prune_json(const Pruned& pruned);

std::string repair_text(const std::string& dir, const RepairReport& report);
std::string repair_json(const std::string& dir, const RepairReport& report);

std::string bench_text(const BenchReport& report);
std::string bench_json(const BenchReport& report);

}  // namespace ms::ckpt
