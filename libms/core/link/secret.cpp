// The only file that includes OpenSSL.
#include "link/secret.h"

#include <openssl/crypto.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <array>

namespace ms::link {
namespace {

std::string hex(std::span<const unsigned char> bytes) {
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

std::string random_hex() {
  std::array<unsigned char, 32> bytes;
  if (RAND_bytes(bytes.data(), bytes.size()) != 1) {
    throw Error("net.secret", Blame::node, "this machine gives no random numbers");
  }
  return hex(bytes);
}

std::string proof(std::string_view secret, std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned int length = 0;
  HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
       reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data(), &length);
  return hex(std::span(digest).first(length));
}

// In a time that says nothing about where they differ.
bool same(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

Error wrong_secret(const Channel& channel) {
  return Error("net.secret", Blame::fabric, fmt::format("{} does not know the secret of this check", channel.peer()));
}

}  // namespace

std::string new_secret() { return random_hex(); }

void greet(Channel& channel, std::string_view secret, std::string_view greeting, Deadline deadline) {
  const std::string theirs = channel.receive_line(deadline, kMaxGreeting);
  const std::string ours = random_hex();
  const std::string said = fmt::format("{} {} {}", theirs, ours, greeting);
  channel.send_line(fmt::format("{} {} {}", ours, proof(secret, "greet " + said), greeting), deadline);
  if (!same(channel.receive_line(deadline, kMaxGreeting), proof(secret, "welcome " + said)))
    throw wrong_secret(channel);
}

std::string challenge(Channel& channel, Deadline deadline) {
  std::string ours = random_hex();
  channel.send_line(ours, deadline);
  return ours;
}

std::string admit(Channel& channel, std::string_view secret, std::string_view nonce, std::string_view line,
                  Deadline deadline) {
  const std::size_t first = line.find(' ');
  const std::size_t second = first == std::string_view::npos ? first : line.find(' ', first + 1);
  if (second == std::string_view::npos) throw wrong_secret(channel);
  std::string greeting(line.substr(second + 1));
  const std::string said = fmt::format("{} {} {}", nonce, line.substr(0, first), greeting);
  if (!same(line.substr(first + 1, second - first - 1), proof(secret, "greet " + said))) throw wrong_secret(channel);
  channel.send_line(proof(secret, "welcome " + said), deadline);
  return greeting;
}

}  // namespace ms::link
