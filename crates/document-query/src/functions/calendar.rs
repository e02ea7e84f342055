//! Dates and times in ticks of 100 nanoseconds since 1970, over the years 1 to 9999 of the Gregorian calendar.

/// Ticks of one second.
pub(super) const SECOND: i64 = 10_000_000;
/// Ticks of one day.
pub(super) const DAY: i64 = 86_400 * SECOND;
/// Years that a date may have.
const YEAR_MAX: i64 = 9999;

/// The parts of a date and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    pub year: i64,
    pub month: i64,
    pub day: i64,
    pub hour: i64,
    pub minute: i64,
    pub second: i64,
    /// Ticks within the second.
    pub fraction: i64,
}

impl Moment {
    /// The ticks; none when a part is out of its range.
    pub fn ticks(&self) -> Option<i64> {
        let valid = (1..=YEAR_MAX).contains(&self.year)
            && (1..=12).contains(&self.month)
            && (1..=days_of_month(self.year, self.month)).contains(&self.day)
            && (0..24).contains(&self.hour)
            && (0..60).contains(&self.minute)
            && (0..60).contains(&self.second)
            && (0..SECOND).contains(&self.fraction);
        let seconds = (self.hour * 60 + self.minute) * 60 + self.second;
        valid.then(|| days_before(self.year, self.month, self.day) * DAY + seconds * SECOND + self.fraction)
    }

    /// The parts of ticks; none outside the years that a date may have.
    pub fn from_ticks(ticks: i64) -> Option<Moment> {
        let (days, rest) = (ticks.div_euclid(DAY), ticks.rem_euclid(DAY));
        let (year, month, day) = date_of(days);
        let seconds = rest / SECOND;
        (1..=YEAR_MAX).contains(&year).then_some(Moment {
            year,
            month,
            day,
            hour: seconds / 3600,
            minute: seconds / 60 % 60,
            second: seconds % 60,
            fraction: rest % SECOND,
        })
    }
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// The number of days of a month from 1 to 12.
pub(super) fn days_of_month(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970-01-01 to the date. Years start in March, so that the leap day is the last of its year.
fn days_before(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The date that is `days` after 1970-01-01.
fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}
