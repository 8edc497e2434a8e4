#include "ckpt/report.h"

#include <algorithm>

#include "base/text.h"
#include "base/utc.h"
#include "ckpt/diff.h"
#include "ckpt/reshard.h"

namespace ms::ckpt {
namespace {

constexpr std::size_t kShown = 10;        // of a list of problems; JSON has all
constexpr std::size_t kTextBytes = 1000;  // of a text from a manifest, of which terminals see printable ASCII only

std::string plain(std::string_view text) { return plain_text(text, kTextBytes); }

std::string line(std::string_view name, const std::string& value) { return fmt::format("{:<14}{}\n", name, value); }

std::string size_text(std::int64_t size_bytes) { return format_size(static_cast<double>(size_bytes)); }

std::string mesh_text(const Manifest& manifest) {
  const std::optional<int> cp = context_ranks(manifest);
  return fmt::format("{} x {} x {} x {}", manifest.dp / cp.value_or(1), cp ? std::to_string(*cp) : "?", manifest.pp,
                     manifest.tp);
}

std::string mesh_line(const Manifest& m) {
  const std::optional<int> cp = context_ranks(m);
  const std::string data = cp ? fmt::format("dp {} x cp {}", m.dp / *cp, *cp) : fmt::format("dp x cp {}", m.dp);
  return line("mesh", fmt::format("{}: {} x pp {} x tp {}, {} a rank, zero {}", plural(m.dp * m.pp * m.tp, "rank"),
                                  data, m.pp, m.tp, plural(static_cast<std::size_t>(m.chunks), "chunk"), m.zero));
}

std::string age_text(const std::string& created, double now_wall_s) {
  const std::optional<double> then_s = utc_seconds(created);
  return then_s ? format_duration(std::max(0.0, now_wall_s - *then_s)) : "-";
}

std::string resume_text(const Found* newest) {
  // Where something is left of checkpoints a run refuses to forget them; else it begins.
  return newest == nullptr ? "no checkpoint is complete: ms-train run --fresh begins at step 0\n"
                           : fmt::format("a run resumes from {}\n", newest->path);
}

std::string problem_lines(const std::vector<std::string>& problems) {
  std::string text;
  for (std::size_t i = 0; i < std::min(problems.size(), kShown); ++i) text += fmt::format("  {}\n", problems[i]);
  if (problems.size() > kShown) text += fmt::format("  and {} more\n", problems.size() - kShown);
  return text;
}

std::string key_lines(std::string_view title, const std::vector<KeyDiff>& rows, std::size_t most) {
  if (rows.empty()) return {};
  std::string text = fmt::format("{}:\n", title);
  for (std::size_t i = 0; i < std::min(rows.size(), most); ++i) {
    const auto side = [](const std::string& value) { return value.empty() ? "(none)" : value; };
    text += fmt::format("  {:<32} {} | {}\n", plain(rows[i].key), plain(side(rows[i].a)), plain(side(rows[i].b)));
  }
  if (rows.size() > most) text += fmt::format("  and {} more\n", rows.size() - most);
  return text;
}

std::string parameter_table(const PieceIndex& index) {
  TextTable table(columns("parameter|shape>|type|states"));
  for (const std::string& name : index.parameters()) {
    const Piece* any = nullptr;
    std::string states;
    for (int s = 0; s < kStates; ++s) {
      const Piece* piece = index.find(static_cast<State>(s), name);
      if (piece == nullptr) continue;
      if (any == nullptr) any = piece;
      states += fmt::format("{}{}", states.empty() ? "" : ", ", to_string(piece->state));
    }
    const Slice& slice = any->slice;
    table.row({name,
               slice.global_rows == 1 ? std::to_string(slice.global_cols)
                                      : fmt::format("{} x {}", slice.global_rows, slice.global_cols),
               std::string(tensor::to_string(any->dtype)), states});
  }
  return table.str();
}

double count_elements(const PieceIndex& index) {
  double elements = 0;
  for (const std::string& name : index.parameters()) {
    for (int s = 0; s < kStates; ++s) {
      if (const Piece* piece = index.find(static_cast<State>(s), name)) {
        elements += static_cast<double>(piece->slice.global_rows * piece->slice.global_cols);
        break;
      }
    }
  }
  return elements;
}

}  // namespace

const Found* resume_point(const std::vector<Found>& found) {
  const Found* newest = nullptr;
  for (const Found& one : found) {
    if (one.condition == Condition::complete && (newest == nullptr || one.step >= newest->step)) newest = &one;
  }
  return newest;
}

std::string why(const Found& found) {
  switch (found.condition) {
    case Condition::saving: return "being saved, or left by a save that was killed";
    case Condition::deleting: return "being deleted, or left by a deletion that was killed";
    case Condition::damaged: return found.problem.empty() ? "found damaged by a run or by repair" : found.problem;
    case Condition::complete:
    case Condition::incomplete: break;
  }
  return found.problem;
}

std::string list_text(const std::string& dir, const std::vector<Found>& found, double now_wall_s) {
  if (found.empty()) return fmt::format("{} holds no checkpoint\n", dir);
  TextTable table(columns("step>|created|age>|size>|files>|dp x cp x pp x tp|state|pinned|why"));
  for (const Found& one : found) {
    std::vector<std::string> cells{std::to_string(one.step), "-", "-", "-", "-", "-"};
    if (one.manifest) {
      cells = {std::to_string(one.step),
               plain(one.manifest->created),
               age_text(one.manifest->created, now_wall_s),
               size_text(one.manifest->size_bytes()),
               std::to_string(one.manifest->files.size()),
               mesh_text(*one.manifest)};
    }
    cells.emplace_back(to_string(one.condition));
    cells.emplace_back(one.pinned ? "pinned" : "");
    cells.push_back(plain(why(one)));
    table.row(std::move(cells));
  }
  return table.str() + resume_text(resume_point(found));
}

std::string show_text(const Found& found, bool parameters) {
  const Manifest& m = *found.manifest;
  const PieceIndex index(m);
  std::string text;
  text += line("path", found.path);
  const std::string reason = plain(why(found));
  text += line("state", fmt::format("{}{}{}{}", to_string(found.condition), found.pinned ? ", pinned" : "",
                                    reason.empty() ? "" : ": ", reason));
  text += line("step", std::to_string(m.step));
  text += line("created", plain(m.created));
  text += line("run", plain(m.run));
  text += line("version", fmt::format("ms {}, format {}", plain(m.version), kFormatVersion));
  text += mesh_line(m);
  text += line(
      "parameters",
      fmt::format("{}, {} elements, {}{}", index.parameters().size(), format_count(count_elements(index)),
                  plain(m.dtype), m.has_optimizer ? ", with the optimizer's state" : ", without an optimizer's state"));
  text += line("data", fmt::format("{} samples trained on{}, seed {}, source {}", m.data.samples,
                                   m.data.rollbacks > 0 ? " or skipped by rollbacks" : "", m.data.seed,
                                   m.data.source.empty() ? "not known" : plain(m.data.source)));
  text += line("generator", plain(m.rng));
  if (!m.matmul_choices.empty()) {  // a line says for what GPU, each other one is a form
    const std::string_view is = " = ";
    const std::string first = m.matmul_choices.substr(0, m.matmul_choices.find('\n'));
    text += line("GEMMs", fmt::format("algorithms of {} forms, for {}", std::ranges::count(m.matmul_choices, '\n') - 1,
                                      plain(first.substr(std::min(first.size(), first.find(is) + is.size())))));
  }
  if (!m.instruction_set.empty()) text += line("computed on", plain(m.instruction_set));
  text += line("files", fmt::format("{}, {}", m.files.size(), size_text(m.size_bytes())));
  if (parameters) text += "\n" + parameter_table(index);
  return text;
}

std::string verify_text(const std::vector<Verified>& verified) {
  std::string text;
  for (const Verified& one : verified) {
    if (one.problems.empty()) {
      text += fmt::format("{}: sound, {}\n", one.path, size_text(one.size_bytes));
    } else {
      text += fmt::format("{}: {}\n{}", one.path, one.unreadable ? "not judged, for it cannot be read" : "not sound",
                          problem_lines(one.problems));
    }
  }
  return text;
}

std::string diff_text(const std::string& a, const std::string& b, const Diff& diff, bool all) {
  std::string text = fmt::format("a: {}\nb: {}\n", a, b);
  text += key_lines("configuration", diff.config, diff.config.size());
  text += key_lines("written by", diff.place, diff.place.size());
  text += key_lines("position", diff.position, diff.position.size());
  text += key_lines("only in one, or of another shape", diff.unmatched, all ? diff.unmatched.size() : kShown);
  TextTable table(columns("parameter|state|elements>|differing>|max abs>|relative l2>"));
  std::size_t differing = 0;
  for (const StateDiff& row : diff.states) {
    const ValueDiff& values = row.values;
    if (values.differing != 0) ++differing;
    if (values.differing == 0 && !all) continue;
    table.row({row.name, std::string(to_string(row.state)), std::to_string(values.elements),
               values.differing == 0 ? "equal" : std::to_string(values.differing),
               values.differing == 0 ? "" : fmt::format("{:.3e}", values.max_abs),
               values.differing == 0 ? "" : fmt::format("{:.3e}", values.relative_l2)});
  }
  if (differing > 0 || (all && !diff.states.empty())) text += table.str();
  text += fmt::format("{} of {} states equal\n", diff.states.size() - differing, diff.states.size());
  text += diff.equal() ? "the same training state\n" : "different training states\n";
  return text;
}

std::string prune_text(const Pruned& pruned) {
  std::string text;
  std::int64_t freed_bytes = 0;
  for (const Found& one : pruned.gone) {
    freed_bytes += one.manifest->size_bytes();
    text += fmt::format("{} {}, {}\n", pruned.dry_run ? "would remove" : "removed", one.path,
                        size_text(one.manifest->size_bytes()));
  }
  return text + fmt::format("{} {} in {}, {} {}\n", plural(pruned.gone.size(), "checkpoint"),
                            pruned.dry_run ? "would go" : "gone", size_text(freed_bytes), pruned.kept,
                            pruned.dry_run ? "would stay" : "stay");
}

std::string repair_text(const std::string& dir, const RepairReport& report) {
  std::string text;
  for (const Repair& repair : report.repairs) {
    text += fmt::format("{}{} {}{}\n{}", report.dry_run ? "would be " : "", to_string(repair.remedy), repair.path,
                        repair.now.empty() ? "" : ", now " + repair.now, problem_lines(repair.reasons));
  }
  for (const Unreadable& one : report.unreadable) {
    text += fmt::format("cannot be read, and is left alone: {}\n{}", one.path, problem_lines(one.reasons));
  }
  if (report.repairs.empty() && report.unreadable.empty()) text += fmt::format("{}: nothing to repair\n", dir);
  if (report.verified > 0) {
    text += fmt::format("{} verified\n", plural(static_cast<std::size_t>(report.verified), "sound checkpoint"));
  }
  return text + resume_text(report.resume_from ? &*report.resume_from : nullptr);
}

std::string bench_text(const BenchReport& report) {
  TextTable table(columns("what|GB/s>|cpu>|ratio>|to|how"));
  for (const BenchRow& row : report.rows) {
    table.row({std::string(row.name), fmt::format("{:.2f}", row.bytes_per_s / 1e9),
               fmt::format("{:.0f} %", 100 * row.cpu_per_s),
               row.against.empty() ? "" : fmt::format("{:.2f}", row.ratio), std::string(row.against),
               std::string(row.doc)});
  }
  return fmt::format("{}: {} in one file, median of {} rounds, {} a load, checkpoint writes {} the page cache\n\n",
                     report.dir, size_text(report.size_bytes), report.rounds,
                     plural(static_cast<std::size_t>(report.threads), "thread"), report.direct ? "past" : "through") +
         table.str();
}

}  // namespace ms::ckpt
