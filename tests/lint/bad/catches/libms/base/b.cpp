void g() {
  try {
  } catch (...) {
  }
}
