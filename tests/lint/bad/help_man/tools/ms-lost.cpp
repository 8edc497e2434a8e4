// A tool without a page.
