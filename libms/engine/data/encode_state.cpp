#include "data/encode_state.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/safe_file.h"

namespace ms::data {
namespace {

constexpr int kStateSchema = 3;
constexpr std::size_t kMaxStateBytes = 1 << 16;

// Calls visit(name, number) for each count of a report.
template <class Report, class Visit>
void each_count(const std::string& of, Report& report, const Visit& visit) {
  visit(of + "files", report.num_files);
  visit(of + "binary_files", report.num_binary_files);
  visit(of + "empty_files", report.num_empty_files);
  visit(of + "text_bytes", report.text_bytes);
  visit(of + "splits", report.num_splits);
  visit(of + "empty_documents", report.num_empty_documents);
  visit(of + "bad_lines", report.num_bad_lines);
  visit(of + "not_utf8", report.num_not_utf8);
  visit(of + "with_control", report.num_with_control);
}

template <class Mark, class Visit>
void each_mark(const std::string& of, Mark& mark, const Visit& visit) {
  visit(of + "sequences", mark.num_sequences);
  visit(of + "tokens", mark.num_tokens);
  visit(of + "documents", mark.num_documents);
}

// Calls visit(name, number or bool) for all of a state but its identity.
template <class State, class Visit>
void each_value_of(State& state, const Visit& visit) {
  visit("position_file", state.position.file);
  visit("position_begun", state.position.begun);
  visit("position_text_bytes", state.position.text_bytes);
  visit("position_lines", state.position.lines);
  visit("position_inside_line", state.position.inside_line);
  each_mark("written_", state.written, visit);
  each_mark("file_begin_", state.file_begin, visit);
  each_count("", state.report, visit);
  each_count("file_", state.file, visit);
  visit("complete", state.complete);
  visit("bin_inode", state.bin_inode);
}

}  // namespace

EncodeReport& EncodeReport::operator+=(const EncodeReport& file) {
  num_files += file.num_files;
  num_binary_files += file.num_binary_files;
  num_empty_files += file.num_empty_files;
  text_bytes += file.text_bytes;
  num_splits += file.num_splits;
  num_empty_documents += file.num_empty_documents;
  num_bad_lines += file.num_bad_lines;
  num_not_utf8 += file.num_not_utf8;
  num_with_control += file.num_with_control;
  return *this;
}

StateFile::StateFile(const std::string& prefix)
    : name_(std::filesystem::path(prefix).filename().string() + ".encode.part"),
      directory_(::open(parent_directory(prefix).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (directory_) return;
  const int err = errno;
  throw user_error("file.write", fmt::format("cannot create {}.bin: {}", prefix, errno_text(err)),
                   err == ENOENT ? "the directory must exist" : "");
}

std::optional<EncodeState> StateFile::read() const {
  const std::optional<std::string> text = read_at(directory_, name_, kMaxStateBytes, {"data.output", Blame::user});
  if (!text) return std::nullopt;
  const std::optional<Json> json = Json::try_parse(*text);
  if (!json) return std::nullopt;
  EncodeState state;
  try {
    if (json->get<int>("schema") != kStateSchema) return std::nullopt;
    json->get_to("identity", state.identity);
    each_value_of(state, [&](const std::string& name, auto& value) { json->get_to(name, value); });
  } catch (const JsonError&) { return std::nullopt; }  // of another program: as if there were none
  state.report.num_documents = state.written.num_documents;
  state.report.num_tokens = state.written.num_tokens;
  return state;
}

void StateFile::write(const EncodeState& state) const {
  Json json{{"schema", kStateSchema}, {"identity", state.identity}};
  each_value_of(state, [&](const std::string& name, const auto& value) { json[name] = value; });
  write_at(directory_, name_, json.dump(1) + "\n", 0644, {"file.write", Blame::storage});
}

void StateFile::remove() const { ::unlinkat(directory_.get(), name_.c_str(), 0); }

}  // namespace ms::data
