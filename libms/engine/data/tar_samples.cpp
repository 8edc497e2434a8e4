#include "data/tar_samples.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "base/base64.h"
#include "base/error.h"
#include "base/escape.h"
#include "base/json.h"
#include "data/image_file.h"

namespace ms::data {
namespace {

constexpr std::size_t kTarBlock = 512;
constexpr std::size_t kNameAt = 0, kNameBytes = 100, kSizeAt = 124, kSizeBytes = 12, kSumAt = 148, kSumBytes = 8,
                      kMemberTypeAt = 156, kTarMagicAt = 257, kPrefixAt = 345, kPrefixBytes = 155;
constexpr std::string_view kTarMagic = "ustar";
constexpr std::int64_t kMostNameBytes = 1 << 16;  // of a long name, or a pax header

std::string_view field(std::string_view header, std::size_t at, std::size_t bytes) {
  const std::string_view all = header.substr(at, bytes);
  return all.substr(0, all.find('\0'));
}

// A number in octal digits, or, where its first bit is set, big-endian in the bytes behind it.
std::optional<std::int64_t> number(std::string_view digits) {
  if (!digits.empty() && (static_cast<unsigned char>(digits[0]) & 0x80U) != 0) {
    std::uint64_t value = static_cast<unsigned char>(digits[0]) & 0x7fU;
    for (const char digit : digits.substr(1)) {
      if (value >> 55U != 0) return std::nullopt;
      value = value << 8U | static_cast<unsigned char>(digit);
    }
    return static_cast<std::int64_t>(value);
  }
  digits.remove_prefix(std::min(digits.find_first_not_of(' '), digits.size()));
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 8);
  if (error != std::errc() || value < 0) return std::nullopt;
  return value;
}

bool has_right_sum(std::string_view header) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < header.size(); ++i)
    sum += i >= kSumAt && i < kSumAt + kSumBytes ? ' ' : static_cast<unsigned char>(header[i]);
  return number(header.substr(kSumAt, kSumBytes)) == sum;
}

// The value of "path" in records "28 path=a/b.jpg\n"; empty: there is none.
std::string path_in_pax(std::string_view records) {
  std::string path;
  while (!records.empty()) {
    std::size_t bytes = 0;
    const auto [end, error] = std::from_chars(records.data(), records.data() + records.size(), bytes);
    const auto digits = static_cast<std::size_t>(end - records.data());
    if (error != std::errc() || bytes > records.size() || bytes < digits + 2) return path;
    const std::string_view record = records.substr(digits + 1, bytes - digits - 2);
    if (record.starts_with("path=")) path = record.substr(5);
    records.remove_prefix(bytes);
  }
  return path;
}

// The path up to the first dot of the name, and what is behind the last one, in lower case.
std::pair<std::string, std::string> key_and_kind(std::string_view path) {
  const std::size_t slash = path.rfind('/'), name = slash == std::string_view::npos ? 0 : slash + 1;
  const std::size_t dot = path.find('.', name);
  if (dot == std::string_view::npos || dot == name) return {std::string(path), ""};
  std::string kind(path.substr(path.rfind('.') + 1));
  for (char& c : kind) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return {std::string(path.substr(0, dot)), kind};
}

}  // namespace

bool is_tar(std::string_view head) {
  return head.size() >= kTarBlock && head.substr(kTarMagicAt).starts_with(kTarMagic);
}

TarSamples::TarSamples(std::string path, std::string text, std::string image)
    : path_(std::move(path)), text_field_(std::move(text)), image_field_(std::move(image)) {}

void TarSamples::damaged(std::string_view what) const {
  throw user_error("data.input", fmt::format("{}: {}", path_, what), "tar -tf FILE lists what is in an archive");
}

void TarSamples::feed(std::string_view bytes, const Sink& sink) {
  const auto take = [&](std::int64_t most) {
    const std::string_view taken = bytes.substr(0, static_cast<std::size_t>(most));
    bytes.remove_prefix(taken.size());
    return taken;
  };
  while (!bytes.empty() && !ended_) {
    if (left_ > 0) {
      const std::string_view part = take(left_);
      left_ -= std::ssize(part);
      if (member_ != Member::passed) bytes_ += part;
      if (left_ == 0) end_member();
    } else if (padding_ > 0) {
      padding_ -= std::ssize(take(padding_));
    } else {
      header_ += take(static_cast<std::int64_t>(kTarBlock - header_.size()));
      if (header_.size() < kTarBlock) return;
      begin_member();
      header_.clear();
      if (ended_ || next_key_ != key_) flush(sink);
      if (left_ == 0 && !ended_) end_member();
    }
  }
}

void TarSamples::end(const Sink& sink) {
  if (!ended_) damaged("the archive is cut off");
  flush(sink);
}

void TarSamples::begin_member() {
  ended_ = header_.find_first_not_of('\0') == std::string::npos;
  if (ended_) return;
  const std::optional<std::int64_t> size_bytes = number(std::string_view(header_).substr(kSizeAt, kSizeBytes));
  if (!has_right_sum(header_) || !size_bytes) damaged("the archive is damaged: a header is no header of tar");
  bytes_.clear();
  left_ = *size_bytes;
  padding_ = (static_cast<std::int64_t>(kTarBlock) - left_ % static_cast<std::int64_t>(kTarBlock)) % kTarBlock;
  const char type = header_[kMemberTypeAt];
  if (type == 'L' || type == 'x') {
    if (left_ > kMostNameBytes) damaged("the archive is damaged: a name is too long");
    member_ = type == 'L' ? Member::long_name : Member::pax;
  } else if (type == '0' || type == '\0' || type == '7') {
    begin_file(*size_bytes);
  } else {
    member_ = Member::passed;
    if (type >= '1' && type <= '6') next_name_.clear();  // a link, a directory or the like, whose name it was
  }
}

void TarSamples::begin_file(std::int64_t size_bytes) {
  const std::string_view prefix = field(header_, kPrefixAt, kPrefixBytes), name = field(header_, kNameAt, kNameBytes);
  name_ = std::exchange(next_name_, {});
  if (name_.empty()) name_ = prefix.empty() ? std::string(name) : fmt::format("{}/{}", prefix, name);
  auto [key, kind] = key_and_kind(name_);
  member_ = kind == "jpg" || kind == "jpeg" || kind == "png" ? Member::image
            : kind == "txt" && !text_field_.empty()          ? Member::text
            : kind == "json"                                 ? Member::json
                                                             : Member::passed;
  if (member_ == Member::passed) return;
  next_key_ = std::move(key);
  if (size_bytes > kMaxImageBytes) damaged(fmt::format("{} has more than {} bytes", safe_line(name_), kMaxImageBytes));
}

void TarSamples::end_member() {
  switch (std::exchange(member_, Member::passed)) {
    case Member::passed: return;
    case Member::image: images_.push_back(to_base64(bytes_)); return;
    case Member::text: text_ = std::move(bytes_), has_text_ = true; return;
    case Member::json: json_ = std::move(bytes_), has_json_ = true; return;
    case Member::long_name: next_name_ = bytes_.substr(0, bytes_.find('\0')); return;
    case Member::pax:
      if (std::string path = path_in_pax(bytes_); !path.empty()) next_name_ = std::move(path);
  }
}

void TarSamples::flush(const Sink& sink) {
  if (has_text_ || has_json_ || !images_.empty()) {
    std::optional<Json> line = Json::object();
    if (has_text_) {
      (*line)[text_field_] = std::move(text_);
    } else if (has_json_) {
      line = Json::try_parse(json_);
    } else {
      (*line)[text_field_] = "";
    }
    if (line && line->is_object()) {
      (*line)[image_field_] = std::exchange(images_, {});
      sink(line->dump());
    } else {
      std::ranges::replace(json_, '\n', ' ');
      sink(json_);
    }
  }
  key_ = next_key_;
  images_.clear(), text_.clear(), json_.clear();
  has_text_ = has_json_ = false;
}

}  // namespace ms::data
