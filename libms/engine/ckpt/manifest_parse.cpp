// Implements the reader of manifest.h.
// Reading manifests, strictly: every number of a parsed manifest may be trusted. The hash is checked first, so that
// damage is reported as damage; the other checks refuse documents that another program wrote wrongly. Entries of files
// are converted as the parser passes them, so that the JSON of a large checkpoint is never in memory as a whole.
#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/text.h"
#include "ckpt/blocks.h"
#include "ckpt/manifest.h"
#include "ckpt/manifest_tail.h"

namespace ms::ckpt {

namespace {

constexpr std::int64_t kInt64Max = std::numeric_limits<std::int64_t>::max();
constexpr int kIntMax = std::numeric_limits<int>::max();
constexpr std::size_t kMaxShown = 80;  // bytes of a text in a message
constexpr std::size_t kMaxDepth = 16;  // ours nest 5 deep
// Steps and samples: what adds to them, multiplies them or prints them as a double stays exact.
constexpr std::int64_t kMaxCount = std::int64_t{1} << 53;

bool is_hex(std::string_view text) {
  return text.size() == 16 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// "2026-01-31T12:00:00Z", by its form.
bool is_time(std::string_view text) {
  constexpr std::string_view kForm = "0000-00-00T00:00:00Z";
  return text.size() == kForm.size() && std::equal(text.begin(), text.end(), kForm.begin(), [](char c, char form) {
           return form == '0' ? c >= '0' && c <= '9' : c == form;
         });
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name != "." && name != ".." && name != kManifestName &&
         std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c < 0x7f && c != '/' && c != '\\'; });
}

// Checks values and says where one is wrong: in which document, and in which of its parts.
class Reader {
 public:
  explicit Reader(std::string where) : where_(std::move(where)) {}
  Reader in(std::string_view part) const { return Reader(fmt::format("{}: {}", where_, part)); }

  template <class... Args>
  void expect(bool holds, fmt::format_string<Args...> what, Args&&... args) const {
    if (holds) return;
    throw Error("ckpt.manifest", Blame::storage,
                fmt::format("{}: {}", where_, fmt::format(what, std::forward<Args>(args)...)));
  }
  void expect_known_version(std::int64_t version) const {
    if (version <= kFormatVersion) return;
    throw user_error("ckpt.version",
                     fmt::format("{}: is of format version {}, this program knows versions up to {}", where_, version,
                                 kFormatVersion),
                     "use the release of ms that wrote it, or a later one");
  }

  // A value of the kind it has to be; `what` names it.
  std::int64_t integer(const Json& value, std::string_view what, std::int64_t min, std::int64_t max) const {
    expect(value.is_number_integer(), "{} is not a whole number", what);
    const bool above = value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(max);
    expect(!above && value.get<std::int64_t>() >= min && value.get<std::int64_t>() <= max, "{} is out of range", what);
    return value.get<std::int64_t>();
  }
  const std::string& text(const Json& value, std::string_view what) const {
    expect(value.is_string(), "{} is not a text", what);
    return value.text();
  }
  // The same of a member of an object.
  const Json& member(const Json& object, const char* key) const {
    expect(object.is_object(), "{} is missing", key);
    const Json* value = object.find(key);
    expect(value != nullptr, "{} is missing", key);
    return *value;
  }
  std::int64_t integer_of(const Json& object, const char* key, std::int64_t min, std::int64_t max) const {
    return integer(member(object, key), key, min, max);
  }
  const std::string& text_of(const Json& object, const char* key) const { return text(member(object, key), key); }
  const Json& array_of(const Json& object, const char* key) const {
    const Json& value = member(object, key);
    expect(value.is_array(), "{} is not a list", key);
    return value;
  }

 private:
  std::string where_;
};

Slice read_slice(const Reader& r, const Json& json) {
  r.expect(json.is_array() && json.size() == 9, "a slice is not a name and eight numbers");
  Slice s;
  s.name = r.text(json[0], "a slice's name");
  std::int64_t* const numbers[] = {&s.global_rows, &s.global_cols, &s.row0,           &s.rows,
                                   &s.col0,        &s.cols,        &s.elements.begin, &s.elements.end};
  for (std::size_t i = 0; i < std::size(numbers); ++i) {
    *numbers[i] = r.integer(json[i + 1], "a slice's number", 0, kInt64Max);
  }
  return s;
}

PlacedPiece read_piece(const Reader& r, const Json& json, const std::vector<Slice>& slices) {
  r.expect(json.is_array() && json.size() == 4, "a piece is not a state, a type, a slice and an offset");
  const auto state = state_from(r.text(json[0], "a piece's state"));
  r.expect(state.has_value(), "a piece's state is not known");
  const std::string& dtype = r.text(json[1], "a piece's type");
  const bool bf16 = dtype == tensor::to_string(tensor::DType::bf16);
  r.expect(bf16 || dtype == tensor::to_string(tensor::DType::f32), "a piece's type is neither f32 nor bf16");
  const std::int64_t slice = r.integer(json[2], "a piece's slice", 0, std::ssize(slices) - 1);
  const PlacedPiece placed{.piece = {.state = *state,
                                     .dtype = bf16 ? tensor::DType::bf16 : tensor::DType::f32,
                                     .slice = slices[static_cast<std::size_t>(slice)]},
                           .offset = r.integer(json[3], "a piece's offset", 0, kInt64Max)};
  r.expect(placed.offset % kDataAlignment == 0, "a piece's offset is not a multiple of {}", kDataAlignment);
  const std::string problem = problem_with(placed.piece);
  r.expect(problem.empty(), "{}", problem);
  return placed;
}

// Every piece within its file, and no byte in two.
void check_places(const Reader& r, const FileEntry& entry) {
  std::vector<std::pair<std::int64_t, std::int64_t>> places;  // begin, end
  places.reserve(entry.pieces.size());
  for (const PlacedPiece& placed : entry.pieces) {
    const std::int64_t size = placed.piece.size_bytes();
    r.expect(size <= entry.size_bytes && placed.offset <= entry.size_bytes - size, "{} {} lies beyond its end",
             to_string(placed.piece.state), placed.piece.slice.name);
    places.emplace_back(placed.offset, placed.offset + size);
  }
  std::sort(places.begin(), places.end());
  for (std::size_t i = 1; i < places.size(); ++i) {
    r.expect(places[i - 1].second <= places[i].first, "two pieces share byte {}", places[i].first);
  }
}

FileEntry read_entry(const Reader& document, const Json& json) {
  FileEntry entry;
  entry.name = document.text_of(json, "name");
  document.expect(is_plain_name(entry.name), "a file is called '{}', which is not a plain name",
                  plain_text(entry.name, kMaxShown));
  const Reader r = document.in(entry.name);
  entry.size_bytes = r.integer_of(json, "size", 0, kInt64Max - kBlockBytes);
  const Json& hashes = r.array_of(json, "xxh64");
  r.expect(std::ssize(hashes) == block_count(entry.size_bytes), "{} hashes for {} blocks", hashes.size(),
           block_count(entry.size_bytes));
  entry.hashes.reserve(hashes.size());
  for (const Json& hash : hashes) {
    const std::string& digits = r.text(hash, "a hash");
    r.expect(is_hex(digits), "a hash is not 16 hexadecimal digits");
    entry.hashes.push_back(std::stoull(digits, nullptr, 16));
  }
  std::vector<Slice> slices;
  for (const Json& slice : r.array_of(json, "slices")) slices.push_back(read_slice(r, slice));
  const Json& pieces = r.array_of(json, "pieces");
  entry.pieces.reserve(pieces.size());
  for (const Json& piece : pieces) entry.pieces.push_back(read_piece(r, piece, slices));
  check_places(r, entry);
  return entry;
}

// Refuses a key that an object has twice, and another format before any of its other values is looked at. Takes the
// entries out of "files" as the parser passes them.
JsonOptions options_for(const Reader& r, Manifest& manifest, std::set<std::string>& names) {
  constexpr std::size_t kEntryDepth = 2;
  return {.max_depth = kMaxDepth,
          .on_duplicate =
              [&r](std::size_t, const std::string& key) {
                r.expect(false, "the key '{}' is there twice", plain_text(key, kMaxShown));
              },
          .keep =
              [&r, &manifest, &names](std::size_t depth, const std::string& top_key, const Json& value) {
                if (depth == 1 && top_key == "format_version") {
                  r.expect_known_version(r.integer(value, "format_version", 1, kInt64Max));
                }
                if (depth != kEntryDepth || top_key != "files" || !value.is_object()) return true;
                manifest.files.push_back(read_entry(r, value));
                const std::string& name = manifest.files.back().name;
                r.expect(names.insert(name).second, "the file {} is there twice", name);
                return false;
              }};
}

void read_frame(const Reader& r, const Json& json, Manifest& m) {
  r.expect(r.text_of(json, "format") == kFormatName, "format is not that of a checkpoint");
  r.integer_of(json, "format_version", 1, kFormatVersion);
  m.step = r.integer_of(json, "step", 0, kMaxCount);
  m.run = r.text_of(json, "run");
  r.expect(is_hex(m.run), "run is not 16 hexadecimal digits");
  m.created = r.text_of(json, "created");
  r.expect(is_time(m.created), "created is not a time in UTC");
  m.version = r.text_of(json, "version");
  m.config = r.text_of(json, "config");
  const Json& layout = r.member(json, "layout");
  const auto axis = [&](const char* key) { return static_cast<int>(r.integer_of(layout, key, 1, kIntMax)); };
  m.dp = axis("dp"), m.pp = axis("pp"), m.tp = axis("tp"), m.chunks = axis("chunks");
  std::int64_t parts = 1;
  for (const int size : {m.dp, m.pp, m.tp, m.chunks}) {
    parts *= size;
    r.expect(parts <= kIntMax, "a layout of {} x {} x {}, {} chunks, is out of range", m.dp, m.pp, m.tp, m.chunks);
  }
  m.zero = static_cast<int>(r.integer_of(layout, "zero", 0, 3));
  m.dtype = r.text_of(json, "dtype");
  r.expect(m.dtype == "fp32" || m.dtype == "bf16", "dtype is neither fp32 nor bf16");
  const Json& data = r.member(json, "data");
  m.data.samples = r.integer_of(data, "samples", 0, kMaxCount);
  const Json& seed = r.member(data, "seed");
  r.expect(seed.is_number_unsigned(), "seed is not a whole number from 0");
  m.data.seed = seed.get<std::uint64_t>();
  m.data.source = r.text_of(data, "source");
  if (data.contains("chain")) {
    m.data.chain = r.text_of(data, "chain");
    r.expect(is_hex(m.data.chain), "chain is not 16 hexadecimal digits");
  }
  if (data.contains("rollbacks")) m.data.rollbacks = r.integer_of(data, "rollbacks", 0, kMaxCount);
  m.rng = r.text_of(json, "rng");
  r.expect(!m.rng.empty(), "rng is empty");
  const Json& optimizer = r.member(json, "has_optimizer");
  r.expect(optimizer.is_boolean(), "has_optimizer is neither true nor false");
  m.has_optimizer = optimizer.get<bool>();
  if (json.contains("matmul_choices")) m.matmul_choices = r.text_of(json, "matmul_choices");
  if (json.contains("instruction_set")) m.instruction_set = r.text_of(json, "instruction_set");
  r.expect(r.array_of(json, "files").empty(), "files has an entry that is not a file's");
}

}  // namespace

Manifest parse_manifest(std::string_view text, const std::string& path) {
  const Reader reader(path);
  const std::size_t tail = manifest_tail(0).size();
  reader.expect(text.size() > tail, "is cut off");
  const std::string_view body = text.substr(0, text.size() - tail);
  reader.expect(text.substr(body.size()) == manifest_tail(xxh64(body)), "its hash is wrong: it is damaged or cut off");

  Manifest manifest;
  std::set<std::string> names;
  std::string problem;
  const std::optional<Json> json = Json::try_parse(text, options_for(reader, manifest, names), &problem);
  reader.expect(json.has_value(), "{}", problem);
  reader.expect(json->is_object(), "is not a JSON object");
  read_frame(reader, *json, manifest);
  return manifest;
}

}  // namespace ms::ckpt
