#include "health/run/result_wire.h"

#include <cstdint>
#include <cstring>

namespace ms::health {
namespace {

class Writer {
 public:
  void put(std::uint64_t value) { append(&value, sizeof value); }
  void put(double value) { append(&value, sizeof value); }
  void put(std::string_view text) {
    put(static_cast<std::uint64_t>(text.size()));
    append(text.data(), text.size());
  }
  void put(const std::optional<double>& value) {
    put(static_cast<std::uint64_t>(value.has_value()));
    put(value.value_or(0));
  }
  std::string bytes;

 private:
  void append(const void* data, std::size_t size) { bytes.append(static_cast<const char*>(data), size); }
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  bool ok() const { return ok_; }
  bool at_end() const { return bytes_.empty(); }
  std::uint64_t number() { return plain<std::uint64_t>(); }
  double real() { return plain<double>(); }
  std::string text() {
    const std::uint64_t size = number();
    if (size > bytes_.size()) {
      ok_ = false;
      return {};
    }
    std::string value(bytes_.substr(0, size));
    bytes_.remove_prefix(size);
    return value;
  }
  std::optional<double> maybe() {
    const bool there = number() != 0;
    const double value = real();
    return there ? std::optional(value) : std::nullopt;
  }
  // A value of an enumeration whose last one this is.
  template <class Enum>
  Enum choice(Enum last) {
    const std::uint64_t value = number();
    if (value > static_cast<std::uint64_t>(last)) {
      ok_ = false;
      return last;
    }
    return static_cast<Enum>(value);
  }

 private:
  template <class T>
  T plain() {
    T value{};
    if (bytes_.size() < sizeof value) {
      ok_ = false;
      bytes_ = {};
      return value;
    }
    std::memcpy(&value, bytes_.data(), sizeof value);
    bytes_.remove_prefix(sizeof value);
    return value;
  }

  std::string_view bytes_;
  bool ok_ = true;
};

}  // namespace

std::string encode(const Result& result) {
  Writer out;
  out.put(result.code);
  out.put(static_cast<std::uint64_t>(result.outcome));
  out.put(result.note);
  out.put(static_cast<std::uint64_t>(result.findings.size()));
  for (const Finding& finding : result.findings) {
    out.put(finding.code);
    out.put(static_cast<std::uint64_t>(finding.severity));
    out.put(static_cast<std::uint64_t>(finding.blame));
    for (const std::string* text : {&finding.entity, &finding.message, &finding.unit, &finding.remedy}) out.put(*text);
    out.put(finding.measured);
    out.put(finding.limit);
  }
  out.put(static_cast<std::uint64_t>(result.measured.size()));
  for (const Measured& measured : result.measured) {
    out.put(measured.entity);
    out.put(measured.value);
    out.put(measured.unit);
  }
  out.put(static_cast<std::uint64_t>(result.counters.size()));
  for (const auto& [name, counter] : result.counters) {
    out.put(name);
    out.put(counter.value);
    out.put(counter.wall_s);
  }
  out.put(result.wall_s);
  return out.bytes;
}

std::optional<Result> decode(std::string_view bytes) {
  Reader in(bytes);
  Result result;
  result.code = in.text();
  result.outcome = in.choice(Outcome::broken);
  result.note = in.text();
  for (std::uint64_t left = in.number(); left > 0 && in.ok(); --left) {
    Finding finding;
    finding.code = in.text();
    finding.severity = in.choice(Severity::critical);
    finding.blame = in.choice(Blame::bug);
    for (std::string* text : {&finding.entity, &finding.message, &finding.unit, &finding.remedy}) *text = in.text();
    finding.measured = in.maybe();
    finding.limit = in.maybe();
    result.findings.push_back(std::move(finding));
  }
  for (std::uint64_t left = in.number(); left > 0 && in.ok(); --left) {
    Measured measured{.entity = in.text()};
    measured.value = in.real();
    measured.unit = in.text();
    result.measured.push_back(std::move(measured));
  }
  for (std::uint64_t left = in.number(); left > 0 && in.ok(); --left) {
    const std::string name = in.text();
    const double value = in.real();
    result.counters[name] = {value, in.real()};
  }
  result.wall_s = in.real();
  if (!in.ok() || !in.at_end()) return std::nullopt;
  return result;
}

}  // namespace ms::health
