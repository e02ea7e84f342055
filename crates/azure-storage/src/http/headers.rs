//! Headers as they came: order and case kept, since the names of `x-ms-meta-*` are the user's data.

/// The headers of a request, in order, with names as the client wrote them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers {
    /// Names and values one after the other, so that a request's headers are one piece of memory and not dozens.
    text: String,
    /// Where each name and each value ends.
    ends: Vec<(usize, usize)>,
}

impl Headers {
    /// No headers.
    pub fn new() -> Headers {
        Headers::default()
    }

    /// Adds one at the end.
    pub fn push(&mut self, name: impl AsRef<str>, value: impl AsRef<str>) {
        self.text.push_str(name.as_ref());
        let name = self.text.len();
        self.text.push_str(value.as_ref());
        self.ends.push((name, self.text.len()));
    }

    /// None, with room for so many of so many bytes.
    pub(crate) fn with_capacity(headers: usize, bytes: usize) -> Headers {
        Headers { text: String::with_capacity(bytes), ends: Vec::with_capacity(headers) }
    }

    /// The first value of that name, in whatever case.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// All values of that name, in order.
    pub fn get_all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> + 'a {
        self.iter().filter(move |(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// All headers in order, names as they came.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|(_, end)| *end));
        starts.zip(&self.ends).map(|(start, (name, end))| (&self.text[start..*name], &self.text[*name..*end]))
    }

    /// The user's metadata: every `x-ms-meta-*` without its prefix, in order, the names' case kept.
    pub fn metadata(&self) -> impl Iterator<Item = (&str, &str)> {
        const PREFIX: &str = "x-ms-meta-";
        self.iter().filter_map(|(name, value)| {
            let prefixed = name.get(..PREFIX.len()).is_some_and(|start| start.eq_ignore_ascii_case(PREFIX));
            prefixed.then(|| (&name[PREFIX.len()..], value))
        })
    }
}

impl FromIterator<(String, String)> for Headers {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(headers: I) -> Self {
        headers.into_iter().fold(Headers::new(), |mut all, (name, value)| {
            all.push(name, value);
            all
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Headers;

    #[test]
    fn names_are_found_in_any_case_and_kept_in_their_own() {
        let mut headers = Headers::new();
        headers.push("X-Ms-Meta-MixedCase", "1");
        headers.push("content-type", "text/plain");
        headers.push("x-ms-meta-", "empty");
        headers.push("Content-Type", "second");
        assert_eq!(headers.get("Content-Type"), Some("text/plain"));
        assert_eq!(headers.get_all("CONTENT-TYPE").count(), 2);
        assert_eq!(headers.metadata().collect::<Vec<_>>(), [("MixedCase", "1"), ("", "empty")]);
        assert_eq!(headers.get("x-ms-meta-none"), None);
    }
}
