// Errors in tests.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <utility>

#include "base/error.h"

namespace ms::test {

// Returns the error that `body` throws; nullopt where it throws none.
template <class Body>
std::optional<Error> error_from(Body&& body) {
  try {
    std::forward<Body>(body)();
  } catch (const Error& error) { return error; }
  return std::nullopt;
}

// Returns the error that `body` must throw. The test fails where it throws none.
template <class Body>
Error thrown_by(Body&& body) {
  const std::optional<Error> error = error_from(std::forward<Body>(body));
  if (error) return *error;
  ADD_FAILURE() << "no error was thrown";
  return {"none", Blame::bug, "none"};
}

}  // namespace ms::test
