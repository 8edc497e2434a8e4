#include "foreign/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/json.h"
#include "base/text.h"
#include "base/utc.h"

namespace ms::foreign {
namespace {

constexpr int kSchema = 1;
constexpr std::size_t kShown = 20;  // of a list; JSON has all

std::string shown(std::string_view text) { return plain_text(text, 200); }
std::string size_of(std::int64_t bytes) { return format_size(static_cast<double>(bytes)); }
std::string shape_of(const Tensor& tensor) { return fmt::format("[{}]", fmt::join(tensor.shape, ", ")); }
std::string_view dtype_name(const Tensor& tensor) { return tensor.dtype == nullptr ? "?" : tensor.dtype->name; }

double elements_of(const Tensor& tensor) {
  double elements = 1;
  for (const std::int64_t size : tensor.shape) elements *= static_cast<double>(size);
  return elements;
}

// How a tensor is cut: the dims that its boxes differ in.
std::string layout_of(const Tensor& tensor) {
  if (tensor.boxes.size() < 2) return "whole";
  std::vector<std::size_t> dims;
  for (std::size_t d = 0; d < tensor.shape.size(); ++d) {
    if (std::ranges::any_of(tensor.boxes, [&](const Box& box) { return box.offsets[d] != tensor.boxes[0].offsets[d]; }))
      dims.push_back(d);
  }
  return fmt::format("{} parts along dim {}", tensor.boxes.size(), fmt::join(dims, ", "));
}

std::string state_of(const Checkpoint& checkpoint) {
  if (!checkpoint.finished) return "unfinished";
  return !checkpoint.problems.empty() ? "damaged" : checkpoint.unread.empty() ? "finished" : "not read";
}

std::string problem_lines(const std::vector<Problem>& problems, std::string_view before) {
  std::string text;
  for (std::size_t i = 0; i < std::min(problems.size(), kShown); ++i)
    text += fmt::format("  {}{}: {}\n", before, problems[i].code, plain_text(problems[i].text, 1000));
  if (problems.size() > kShown) text += fmt::format("  and {} more\n", problems.size() - kShown);
  return text;
}

Json problems_json(const std::vector<Problem>& problems) {
  Json json = Json::array();
  for (const Problem& problem : problems) json.push_back({{"code", problem.code}, {"text", problem.text}});
  return json;
}

Json place_json(const Place& place, const Checkpoint& checkpoint) {
  return {{"path", place.path},
          {"format", place.format->name},
          {"step", place.step ? Json(*place.step) : Json(nullptr)},
          {"written", utc_text(place.written_wall_s)},
          {"state", state_of(checkpoint)},
          {"size_bytes", size_bytes(checkpoint)},
          {"num_files", checkpoint.files.size()},
          {"num_tensors", checkpoint.tensors.size()},
          {"problems", problems_json(checkpoint.problems)}};
}

}  // namespace

std::string list_text(const std::string&, const std::vector<Place>& places,
                      const std::vector<Checkpoint>& checkpoints) {
  TextTable table({{"checkpoint"},
                   {"step", Align::right},
                   {"format"},
                   {"written"},
                   {"size", Align::right},
                   {"files", Align::right},
                   {"tensors", Align::right},
                   {"state"},
                   {"why"}});
  for (std::size_t i = 0; i < places.size(); ++i) {
    const Checkpoint& one = checkpoints[i];
    table.row({shown(places[i].path), places[i].step ? std::to_string(*places[i].step) : "-",
               std::string(places[i].format->name), utc_text(places[i].written_wall_s), size_of(size_bytes(one)),
               std::to_string(one.files.size()), std::to_string(one.tensors.size()), state_of(one),
               one.problems.empty() ? "" : shown(one.problems.front().text)});
  }
  return table.str();
}

std::string list_json(const std::string& dir, const std::vector<Place>& places,
                      const std::vector<Checkpoint>& checkpoints) {
  Json list = Json::array();
  for (std::size_t i = 0; i < places.size(); ++i) list.push_back(place_json(places[i], checkpoints[i]));
  return Json{{"schema", kSchema}, {"dir", dir}, {"checkpoints", std::move(list)}}.dump(2) + "\n";
}

std::string show_text(const Checkpoint& checkpoint, bool tensors) {
  const auto line = [](std::string_view name, const std::string& value) {
    return fmt::format("{:<12}  {}\n", name, value);
  };
  std::string text = line("path", checkpoint.path) + line("format", std::string(checkpoint.format)) +
                     line("state", state_of(checkpoint));
  std::map<std::string_view, double> types;
  double elements = 0;
  for (const Tensor& tensor : checkpoint.tensors) {
    types[dtype_name(tensor)] += elements_of(tensor);
    elements += elements_of(tensor);
  }
  std::string of_types;
  for (const auto& [name, count] : types)
    of_types += fmt::format("{}{} of {}", of_types.empty() ? ": " : ", ", format_count(count), name);
  text +=
      line("tensors", fmt::format("{}, {} elements{}", checkpoint.tensors.size(), format_count(elements), of_types));
  text += line("objects", std::to_string(checkpoint.objects.size()));
  text += line("files", fmt::format("{}, {}", checkpoint.files.size(), size_of(size_bytes(checkpoint))));
  for (std::size_t i = 0; i < std::min(checkpoint.facts.size(), kShown); ++i)
    text += line(shown(checkpoint.facts[i].first), shown(checkpoint.facts[i].second));
  text += problem_lines(checkpoint.problems, "") + problem_lines(checkpoint.unread, "not read: ") +
          problem_lines(checkpoint.doubts, "in doubt: ");
  if (!tensors) return text;
  TextTable table({{"tensor"}, {"shape", Align::right}, {"type"}, {"layout"}});
  for (const Tensor& tensor : checkpoint.tensors)
    table.row({shown(tensor.name), shape_of(tensor), std::string(dtype_name(tensor)), layout_of(tensor)});
  text += "\n" + table.str();
  for (const auto& [name, item] : checkpoint.objects) text += fmt::format("object {}\n", shown(name));
  return text;
}

std::string show_json(const Checkpoint& checkpoint) {
  Json tensors = Json::array(), objects = Json::array(), facts = Json::object();
  for (const Tensor& tensor : checkpoint.tensors) {
    Json boxes = Json::array();
    for (const Box& box : tensor.boxes) {
      const Item& item = checkpoint.items[box.item];
      boxes.push_back({{"offsets", box.offsets},
                       {"sizes", box.sizes},
                       {"file", checkpoint.files[item.file]},
                       {"begin", item.begin},
                       {"size_bytes", item.size_bytes}});
    }
    tensors.push_back({{"name", tensor.name},
                       {"dtype", dtype_name(tensor)},
                       {"shape", tensor.shape},
                       {"layout", layout_of(tensor)},
                       {"boxes", std::move(boxes)}});
  }
  for (const auto& [name, item] : checkpoint.objects) objects.push_back(name);
  for (const auto& [name, value] : checkpoint.facts) facts[name] = value;
  return Json{{"schema", kSchema},
              {"path", checkpoint.path},
              {"format", checkpoint.format},
              {"state", state_of(checkpoint)},
              {"size_bytes", size_bytes(checkpoint)},
              {"files", checkpoint.files},
              {"facts", std::move(facts)},
              {"tensors", std::move(tensors)},
              {"objects", std::move(objects)},
              {"problems", problems_json(checkpoint.problems)},
              {"unread", problems_json(checkpoint.unread)},
              {"doubts", problems_json(checkpoint.doubts)}}
             .dump(2) +
         "\n";
}

std::string verify_text(const std::vector<Verified>& verified) {
  std::string text;
  for (const Verified& one : verified) {
    const std::string_view verdict = !one.problems.empty() ? "not sound"
                                     : one.unreadable      ? "not judged, for not all of it can be read"
                                                           : "sound";
    text += fmt::format("{}: {}, {}, {}{}\n", one.path, verdict, one.format, size_of(one.size_bytes),
                        one.sound() && !one.has_crcs ? ", which has no checksums" : "");
    text += problem_lines(one.problems, "") + problem_lines(one.doubts, "in doubt: ");
    if (one.sound() && one.num_unjudged > 0)
      text += fmt::format("  values that are not tensors, which were not judged: {}\n", one.num_unjudged);
  }
  return text;
}

std::string verify_json(const std::vector<Verified>& verified) {
  Json checkpoints = Json::array();
  bool sound = true;
  for (const Verified& one : verified) {
    sound = sound && one.sound();
    checkpoints.push_back({{"path", one.path},
                           {"format", one.format},
                           {"sound", one.sound()},
                           {"unreadable", one.unreadable},
                           {"has_crcs", one.has_crcs},
                           {"num_unjudged", one.num_unjudged},
                           {"size_bytes", one.size_bytes},
                           {"problems", problems_json(one.problems)},
                           {"doubts", problems_json(one.doubts)}});
  }
  return Json{{"schema", kSchema}, {"sound", sound}, {"checkpoints", std::move(checkpoints)}}.dump(2) + "\n";
}

}  // namespace ms::foreign
