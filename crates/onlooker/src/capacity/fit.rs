// SPDX-License-Identifier: Apache-2.0
//! A resource's share by the load: a parabola or a line by least squares, and the load at which it reaches a limit.
//!
//! The published way (a study of acquisition systems, 2011) is a parabola. One that is made of noise bends where nothing
//! does, so it must earn its square term; else it is a line, as through few loads. Pure functions of their points.

/// Greatest by least load from which on anything is predicted.
pub(super) const MIN_SPREAD: f64 = 1.5;
/// Loads nearer to each other than this share of the greatest are one.
const SAME_LOAD: f64 = 0.02;
/// Loads that a parabola takes: with three it goes through all, whatever they are.
const PARABOLA_LOADS: usize = 4;
/// A term is there if it is so many times its standard error. (Points that follow each other resemble each other, so
/// that an error is underestimated: twice is not enough.)
const SIGNIFICANT: f64 = 3.0;
/// What a term must contribute of the greatest share, or rounding is taken for one.
const NEGLIGIBLE: f64 = 1e-6;

/// A load, and a share at it.
pub(super) type Point = (f64, f64);

/// Coefficients of 1, x and x², the last one 0 for a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Curve {
    pub(super) coefficients: [f64; 3],
    /// Share of the variance that it explains.
    pub(super) r2: f64,
}

impl Curve {
    pub(super) fn name(&self) -> &'static str {
        if self.coefficients[2] == 0.0 { "line" } else { "parabola" }
    }
}

/// What can be said of where a resource ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Outlook {
    /// It reaches the limit at this load.
    Ends { at: f64, curve: Curve },
    /// It does not grow with the load, or so little that noise hides it.
    Flat,
}

/// How the loads are spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) least: f64,
    pub(super) greatest: f64,
    /// Loads that differ.
    pub(super) loads: usize,
}

impl Spread {
    /// Of loads; none are none.
    pub(super) fn of(loads: impl Iterator<Item = f64>) -> Option<Self> {
        let mut loads: Vec<f64> = loads.filter(|load| load.is_finite() && *load > 0.0).collect();
        loads.sort_unstable_by(f64::total_cmp);
        let (least, greatest) = (*loads.first()?, *loads.last()?);
        let mut last = least;
        let differ = |load: &&f64| {
            let is_new = **load - last > SAME_LOAD * greatest;
            if is_new {
                last = **load;
            }
            is_new
        };
        let more = loads.iter().filter(differ).count();
        Some(Self { least, greatest, loads: 1 + more })
    }

    /// Whether they say anything of a load beyond them.
    pub(super) fn is_enough(&self) -> bool {
        self.greatest >= MIN_SPREAD * self.least
    }
}

/// Where a share reaches `limit`. Without enough spread, or too few points: `None`.
pub(super) fn outlook(points: &[Point], limit: f64) -> Option<Outlook> {
    let is_number = |point: &&Point| point.0.is_finite() && point.0 > 0.0 && point.1.is_finite();
    let points: Vec<Point> = points.iter().filter(is_number).copied().collect();
    let spread = Spread::of(points.iter().map(|point| point.0)).filter(Spread::is_enough)?;
    if points.len() < 3 {
        return None;
    }
    let parabola = || (spread.loads >= PARABOLA_LOADS).then(|| Centred::fit(&points, 3)?.ends(limit)).flatten();
    let line = || Centred::fit(&points, 2)?.ends(limit);
    Some(parabola().or_else(line).map_or(Outlook::Flat, |(at, curve)| Outlook::Ends { at, curve }))
}

/// A polynomial of (x - origin) / scale, whose powers are of one size.
struct Centred {
    origin: f64,
    scale: f64,
    /// Where the greatest load is.
    right: f64,
    /// Two or three are used.
    terms: [f64; 3],
    count: usize,
    /// The last term by its standard error.
    significance: f64,
    r2: f64,
    greatest_share: f64,
}

impl Centred {
    /// Least squares by the normal equations of `count` terms.
    #[allow(clippy::cast_precision_loss)] // counts of points
    fn fit(points: &[Point], count: usize) -> Option<Self> {
        let all = points.len() as f64;
        let mean = |of: &dyn Fn(&Point) -> f64| points.iter().map(of).sum::<f64>() / all;
        let (origin, mean_share) = (mean(&|point| point.0), mean(&|point| point.1));
        let greatest = |of: &dyn Fn(&Point) -> f64| points.iter().map(of).fold(0.0, f64::max);
        let scale = greatest(&|point| (point.0 - origin).abs());
        let greatest_share = greatest(&|point| point.1.abs());
        let right = (greatest(&|point| point.0) - origin) / scale;
        if points.len() < count || scale <= 0.0 {
            return None;
        }
        let powers = |x: f64| {
            let u = (x - origin) / scale;
            [1.0, u, u * u]
        };
        let (mut matrix, mut terms) = ([[0.0; 3]; 3], [0.0; 3]);
        for (x, y) in points {
            let powers = powers(*x);
            for row in 0..count {
                terms[row] += powers[row] * y;
                (0..count).for_each(|column| matrix[row][column] += powers[row] * powers[column]);
            }
        }
        // Gauss' elimination; a matrix of sums of squares needs no pivoting. One over the last pivot is the last
        // diagonal element of the inverse, by which the variance of residuals becomes that of the last term.
        for step in 0..count {
            if matrix[step][step] <= 1e-9 * all {
                return None;
            }
            for row in step + 1..count {
                let factor = matrix[row][step] / matrix[step][step];
                (step..count).for_each(|column| matrix[row][column] -= factor * matrix[step][column]);
                terms[row] -= factor * terms[step];
            }
        }
        let pivot = matrix[count - 1][count - 1];
        for row in (0..count).rev() {
            let known: f64 = (row + 1..count).map(|column| matrix[row][column] * terms[column]).sum();
            terms[row] = (terms[row] - known) / matrix[row][row];
        }
        let value = |x: f64| powers(x).iter().zip(&terms).map(|(power, term)| power * term).sum::<f64>();
        let residual: f64 = points.iter().map(|(x, y)| (y - value(*x)).powi(2)).sum();
        let total: f64 = points.iter().map(|(_, y)| (y - mean_share).powi(2)).sum();
        let free = points.len() - count;
        let error = (residual / free.max(1) as f64 / pivot).sqrt();
        // Points on a curve have no error, and two points no residual.
        let significance = if free == 0 || error <= 0.0 { f64::INFINITY } else { terms[count - 1].abs() / error };
        let r2 = if total > 0.0 { 1.0 - residual / total } else { 1.0 };
        Some(Self { origin, scale, right, terms, count, significance, r2, greatest_share })
    }

    /// Where it reaches the limit, if it rises at the greatest load, and its last term is more than noise.
    fn ends(&self, limit: f64) -> Option<(f64, Curve)> {
        let [a, b, c] = self.terms;
        let is_there =
            self.significance >= SIGNIFICANT && self.terms[self.count - 1].abs() > NEGLIGIBLE * self.greatest_share;
        if !is_there || b + 2.0 * c * self.right <= 0.0 {
            return None;
        }
        let root = (b * b - 4.0 * c * (a - limit)).sqrt();
        // The root at which the curve rises, in the form that does not cancel. NaN: there is none.
        let u = if b >= 0.0 { 2.0 * (limit - a) / (b + root) } else { (root - b) / (2.0 * c) };
        let at = self.origin + self.scale * u;
        let (k, s) = (self.origin / self.scale, self.scale);
        let coefficients = [a - b * k + c * k * k, (b - 2.0 * c * k) / s, c / (s * s)];
        at.is_finite().then_some((at, Curve { coefficients, r2: self.r2 }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOADS: [f64; 6] = [1e4, 2e4, 4e4, 8e4, 1.2e5, 1.6e5];

    fn points(share: impl Fn(f64) -> f64) -> Vec<Point> {
        LOADS.iter().flat_map(|x| [(*x, share(*x)); 3]).collect()
    }

    /// Noise that is the same in each run, in -1..1.
    fn noise() -> impl FnMut() -> f64 {
        let mut state = 7_u64;
        move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            f64::from(u32::try_from(state >> 33).unwrap()) / f64::from(1_u32 << 30) - 1.0
        }
    }

    fn ends(points: &[Point], limit: f64) -> (f64, Curve) {
        match outlook(points, limit) {
            Some(Outlook::Ends { at, curve }) => (at, curve),
            other => panic!("{other:?}"),
        }
    }

    fn is_near(found: f64, expected: f64, relative: f64) -> bool {
        (found - expected).abs() <= relative * expected.abs()
    }

    #[test]
    fn parabolas_are_found_again_with_their_roots() {
        for coefficients in [[0.02, 3e-6, 4e-12], [0.02, 3e-6, -2e-12], [0.5, 1e-7, 1e-12], [0.1, -1e-7, 5e-12]] {
            let [a, b, c] = coefficients;
            let share = |x: f64| a + b * x + c * x * x;
            for limit in [0.8, 1.0] {
                let (at, curve) = ends(&points(share), limit);
                assert!(is_near(share(at), limit, 1e-6), "{coefficients:?}: {limit} at {at}");
                let same =
                    curve.coefficients.iter().zip(coefficients).all(|(found, given)| is_near(*found, given, 1e-6));
                assert!(same && curve.r2 > 0.999_999, "{curve:?}");
            }
        }
    }

    #[test]
    fn a_line_is_no_parabola_and_ends_where_it_does() {
        let (at, curve) = ends(&points(|x| 0.1 + 2e-6 * x), 1.0);
        assert!(is_near(at, 4.5e5, 1e-9) && curve.coefficients[2] == 0.0, "{at} {curve:?}");
        // Two loads: nothing but a line can be known.
        let two = [(1e4, 0.1), (1e4, 0.12), (2e4, 0.2), (2e4, 0.22)];
        let (at, curve) = ends(&two, 1.0);
        assert!(is_near(at, 9.9e4, 1e-6) && curve.coefficients[2] == 0.0, "{at} {curve:?}");
    }

    #[test]
    fn what_already_is_beyond_the_limit_has_reached_it() {
        let (at, _) = ends(&points(|x| 1e-5 * x), 1.0);
        assert!(is_near(at, 1e5, 1e-9), "{at}");
    }

    #[test]
    fn noise_makes_no_parabola_and_moves_the_end_little() {
        let mut noise = noise();
        let noisy: Vec<Point> = (0..20).flat_map(|_| LOADS).map(|x| (x, 0.05 + 2e-6 * x + 0.02 * noise())).collect();
        let (at, curve) = ends(&noisy, 1.0);
        assert!(is_near(at, 4.75e5, 0.05) && curve.coefficients[2] == 0.0 && curve.r2 > 0.9, "{at} {curve:?}");
        let bent: Vec<Point> =
            (0..20).flat_map(|_| LOADS).map(|x| (x, 0.05 + 1e-6 * x + 1e-11 * x * x + 0.02 * noise())).collect();
        let (at, curve) = ends(&bent, 1.0);
        assert!(is_near(at, 2.623e5, 0.05) && curve.coefficients[2] > 0.0, "{at} {curve:?}");
    }

    #[test]
    fn a_parabola_that_never_gets_there_is_a_line() {
        // Bends down after the greatest load, before it reaches 1; and before the greatest load.
        for top in [2e5, 1e5] {
            let share = |x: f64| 0.5 - 0.4 * (1.0 - x / top).powi(2);
            let line = Centred::fit(&points(share), 2).unwrap().ends(1.0).unwrap();
            assert_eq!(ends(&points(share), 1.0), line, "{top}");
            assert!(line.0 > 1.6e5 && line.1.coefficients[2] == 0.0, "{line:?}");
        }
    }

    #[test]
    fn what_does_not_grow_ends_nowhere() {
        let mut noise = noise();
        let level: Vec<Point> = (0..20).flat_map(|_| LOADS).map(|x| (x, 0.3 + 0.01 * noise())).collect();
        assert_eq!(outlook(&level, 1.0), Some(Outlook::Flat));
        assert_eq!(outlook(&points(|_| 0.3), 1.0), Some(Outlook::Flat));
        assert_eq!(outlook(&points(|_| 0.0), 1.0), Some(Outlook::Flat));
        assert_eq!(outlook(&points(|x| 0.3 - 1e-6 * x), 1.0), Some(Outlook::Flat));
    }

    #[test]
    fn without_spread_nothing_is_said() {
        for points in [vec![], vec![(1e4, 0.1)], vec![(1e4, 0.1), (2e4, 0.2)], vec![(1e4, 0.1); 9]] {
            assert_eq!(outlook(&points, 1.0), None, "{points:?}");
        }
        let narrow = |greatest: f64| (0..9).map(|at| (1e4 + f64::from(at) / 8.0 * (greatest - 1e4), 0.1)).collect();
        let (narrow, wide): (Vec<Point>, Vec<Point>) = (narrow(1.49e4), narrow(1.51e4));
        assert!(outlook(&narrow, 1.0).is_none() && outlook(&wide, 1.0).is_some());
        // What is no number is no point.
        let mut broken = points(|x| 1e-6 * x);
        broken.extend([(f64::NAN, 0.5), (5e4, f64::NAN), (f64::INFINITY, 1.0), (0.0, 1.0), (-5.0, 1.0)]);
        assert_eq!(outlook(&broken, 1.0), outlook(&points(|x| 1e-6 * x), 1.0));
    }

    #[test]
    fn loads_that_hardly_differ_are_one() {
        let spread = Spread::of([1000.0, 1001.0, 1019.0, 500.0, 505.0, 750.0].into_iter()).unwrap();
        assert_eq!(spread, Spread { least: 500.0, greatest: 1019.0, loads: 3 });
        assert_eq!(Spread::of([f64::NAN, 0.0].into_iter()), None);
    }

    #[test]
    fn any_points_have_an_answer_that_is_a_number() {
        bolero::check!().with_type::<Vec<(f64, f64)>>().for_each(|points| {
            if let Some(Outlook::Ends { at, .. }) = outlook(points, 1.0) {
                assert!(at.is_finite());
            }
        });
    }
}
